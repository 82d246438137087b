// The language host pulumi-language-python where it can't be downloaded: Pulumi's environments (`python/toolchain`) and
// its generator of SDKs (`codegen/python`), of the CLI's own version.
//
// The host itself is a module that is not published since 3.78.1, and that one starts no package for today's CLI: it
// reads fields of RunPlugin that the CLI no longer sends, and no runtime options. What this one does, it does as
// pulumi's `sdk/python/cmd/pulumi-language-python` of 3.259: the same environment, the same command line, the same SDK.
// It has no debugger, no type checker and no policy packs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"github.com/pulumi/pulumi/sdk/v3/python/toolchain"

	"kai-anywhere/toolchain/language-hosts/host"
)

const (
	executor = "pulumi-language-python-exec"
	sdks     = `import glob, json, sysconfig
files = glob.glob(sysconfig.get_path("purelib") + "/*/pulumi-plugin.json")
print(json.dumps([json.load(open(file)) for file in files]))`
)

type pythonHost struct {
	host.Base
	executor string
}

func main() {
	host.Main(func(base host.Base) (pulumirpc.LanguageRuntimeServer, error) {
		program, err := os.Executable()
		if err != nil {
			return nil, err
		}
		if program, err = filepath.EvalSymlinks(program); err != nil {
			return nil, err
		}
		return &pythonHost{base, filepath.Join(filepath.Dir(program), executor)}, nil
	})
}

// environment is where a program or a plugin runs. A plugin never has the environment of whoever started it.
func environment(info *pulumirpc.ProgramInfo, plugin bool) (toolchain.Toolchain, error) {
	chosen := toolchain.PythonOptions{Root: info.GetRootDirectory(), ProgramDir: info.GetProgramDirectory()}
	var err error
	if chosen.Virtualenv, err = host.Option(info, "virtualenv"); err != nil {
		return nil, err
	}
	manager, err := host.Option(info, "toolchain")
	if err != nil {
		return nil, err
	}
	switch manager {
	case "", "pip":
		if manager == "pip" {
			chosen.Toolchain = toolchain.Pip
		}
		if plugin && chosen.Virtualenv == "" {
			chosen.Virtualenv = "venv"
		}
	case "poetry":
		chosen.Toolchain = toolchain.Poetry
	case "uv":
		chosen.Toolchain = toolchain.Uv
	default:
		return nil, fmt.Errorf("the option toolchain of runtime python is %q; it is pip, poetry or uv", manager)
	}
	return toolchain.ResolveToolchain(chosen)
}

// GetRequiredPackages makes the environment, as the CLI expects, and reads what SDKs in it say.
func (h *pythonHost) GetRequiredPackages(
	ctx context.Context, req *pulumirpc.GetRequiredPackagesRequest,
) (*pulumirpc.GetRequiredPackagesResponse, error) {
	venv, err := environment(req.GetInfo(), false)
	if err != nil {
		return nil, err
	}
	if err := venv.EnsureVenv(ctx, req.GetInfo().GetProgramDirectory(), false, true, os.Stderr, os.Stderr); err != nil {
		return nil, err
	}
	command, err := venv.Command(ctx, "-c", sdks)
	if err != nil {
		return nil, err
	}
	said, err := command.Output()
	if err != nil {
		return nil, err
	}
	var plugins []host.Plugin
	if err := json.Unmarshal(said, &plugins); err != nil {
		return nil, err
	}
	return host.Required(plugins), nil
}

func (h *pythonHost) InstallDependencies(
	req *pulumirpc.InstallDependenciesRequest, server pulumirpc.LanguageRuntime_InstallDependenciesServer,
) error {
	venv, err := environment(req.GetInfo(), req.GetIsPlugin())
	if err != nil {
		return err
	}
	closer, stdout, stderr, err := rpcutil.MakeInstallDependenciesStreams(server, req.GetIsTerminal())
	if err != nil {
		return err
	}
	defer closer.Close()
	if err := venv.InstallDependencies(
		server.Context(), req.GetInfo().GetProgramDirectory(), req.GetUseLanguageVersionTools(), true, stdout, stderr,
	); err != nil {
		return err
	}
	return closer.Close()
}

func (h *pythonHost) Run(ctx context.Context, req *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	venv, err := environment(req.GetInfo(), false)
	if err != nil {
		return nil, err
	}
	if err := venv.ValidateVenv(ctx); err != nil {
		return nil, err
	}
	arguments := []string{h.executor}
	for _, option := range [][2]string{
		{"monitor", req.GetMonitorAddress()},
		{"engine", h.Engine},
		{"project", req.GetProject()},
		{"root_directory", req.GetInfo().GetRootDirectory()},
		{"stack", req.GetStack()},
		{"pwd", req.GetPwd()},
		{"dry_run", strconv.FormatBool(req.GetDryRun())},
		{"parallel", strconv.Itoa(int(req.GetParallel()))},
		{"organization", req.GetOrganization()},
	} {
		if option[1] != "" {
			arguments = append(arguments, "--"+option[0], option[1])
		}
	}
	command, err := venv.Command(ctx, append(append(arguments, req.GetInfo().GetEntryPoint()), req.GetArgs()...)...)
	if err != nil {
		return nil, err
	}
	return host.Run(command, req)
}

func (h *pythonHost) RunPlugin(req *pulumirpc.RunPluginRequest, server pulumirpc.LanguageRuntime_RunPluginServer) error {
	venv, err := environment(req.GetInfo(), true)
	if err != nil {
		return err
	}
	command, err := venv.Command(server.Context(), append([]string{req.GetInfo().GetProgramDirectory()}, req.GetArgs()...)...)
	if err != nil {
		return err
	}
	closer, stdout, stderr, err := rpcutil.MakeRunPluginStreams(server, false)
	if err != nil {
		return err
	}
	defer closer.Close()
	command.Dir = req.GetPwd()
	command.Env = append(command.Env, req.GetEnv()...)
	command.Stdout, command.Stderr = stdout, stderr
	err = command.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return server.Send(&pulumirpc.RunPluginResponse{
			Output: &pulumirpc.RunPluginResponse_Exitcode{Exitcode: int32(exit.ExitCode())},
		})
	}
	if err != nil {
		return err
	}
	return closer.Close()
}

func (h *pythonHost) GeneratePackage(
	_ context.Context, req *pulumirpc.GeneratePackageRequest,
) (*pulumirpc.GeneratePackageResponse, error) {
	return host.Generate(req, func(pkg *schema.Package, loader schema.ReferenceLoader) (map[string][]byte, error) {
		return python.GeneratePackage("pulumi-language-python", pkg, req.GetExtraFiles(), loader)
	})
}

// Link writes the SDKs' folders into the program's requirements.
func (h *pythonHost) Link(ctx context.Context, req *pulumirpc.LinkRequest) (*pulumirpc.LinkResponse, error) {
	venv, err := environment(req.GetInfo(), false)
	if err != nil {
		return nil, err
	}
	folders := map[string]string{}
	languages := map[string]schema.Language{"python": python.Importer}
	linked, err := host.Link(ctx, req, languages, func(pkg *schema.Package, sdk string) (string, error) {
		name := importName(pkg)
		folders[name] = sdk
		return "import " + name, nil
	})
	if err != nil {
		return nil, err
	}
	return linked, venv.LinkPackages(ctx, folders)
}

func importName(pkg *schema.Package) string {
	if info, said := pkg.Language["python"].(python.PackageInfo); said && info.PackageName != "" {
		return info.PackageName
	}
	return python.PyPack(pkg.Namespace, pkg.Name)
}
