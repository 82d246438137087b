// The language host pulumi-language-python where it can't be downloaded: gRPC around the parts of Pulumi that are Go
// modules, `python/toolchain` (environments) and `codegen/python` (SDKs), of the CLI's own version.
//
// The host itself is a module that is not published since 3.78.1, and that one starts no package for today's CLI: it
// reads fields of RunPlugin that the CLI no longer sends, and no runtime options. What this one does, it does as
// pulumi's `sdk/python/cmd/pulumi-language-python` of 3.259: the same environment, the same command line, the same SDK.
// It has no debugger, no type checker and no policy packs, and finds no plugins by installed packages.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"github.com/pulumi/pulumi/sdk/v3/python/toolchain"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	executor = "pulumi-language-python-exec"
	// How a program ends that has told its error itself.
	toldItsError = 32
)

type host struct {
	pulumirpc.UnimplementedLanguageRuntimeServer
	engine, executor string
}

func main() {
	// A YAML host with an older engine inside says the options of a runtime here too; the requests have them all.
	for _, name := range []string{"root", "toolchain", "virtualenv", "typechecker", "tracing"} {
		flag.String(name, "", "read from the requests")
	}
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: pulumi-language-python ENGINE-ADDRESS")
		os.Exit(2)
	}
	if err := serve(flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(engine string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	stop := make(chan bool)
	go func() {
		<-ctx.Done()
		close(stop)
	}()
	if err := rpcutil.Healthcheck(ctx, engine, 0, cancel); err != nil {
		return err
	}
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: stop,
		Init: func(server *grpc.Server) error {
			pulumirpc.RegisterLanguageRuntimeServer(
				server, &host{engine: engine, executor: filepath.Join(filepath.Dir(program), executor)})
			return nil
		},
	})
	if err != nil {
		return err
	}
	fmt.Println(handle.Port)
	return <-handle.Done
}

// environment is where a program or a plugin runs. A plugin never has the environment of whoever started it.
func environment(info *pulumirpc.ProgramInfo, plugin bool) (toolchain.Toolchain, error) {
	chosen := toolchain.PythonOptions{Root: info.GetRootDirectory(), ProgramDir: info.GetProgramDirectory()}
	options := info.GetOptions().AsMap()
	text := func(name string) (string, error) {
		value, said := options[name]
		if !said {
			return "", nil
		}
		if value, isText := value.(string); isText {
			return value, nil
		}
		return "", fmt.Errorf("the option %s of runtime python must be a text", name)
	}
	var err error
	if chosen.Virtualenv, err = text("virtualenv"); err != nil {
		return nil, err
	}
	manager, err := text("toolchain")
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

func (h *host) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{}, nil
}

func (h *host) Handshake(
	context.Context, *pulumirpc.LanguageHandshakeRequest,
) (*pulumirpc.LanguageHandshakeResponse, error) {
	return &pulumirpc.LanguageHandshakeResponse{}, nil
}

// GetRequiredPackages makes the environment, as the CLI expects. Plugins are found when a resource asks for them.
func (h *host) GetRequiredPackages(
	ctx context.Context, req *pulumirpc.GetRequiredPackagesRequest,
) (*pulumirpc.GetRequiredPackagesResponse, error) {
	venv, err := environment(req.GetInfo(), false)
	if err != nil {
		return nil, err
	}
	if err := venv.EnsureVenv(ctx, req.GetInfo().GetProgramDirectory(), false, true, os.Stderr, os.Stderr); err != nil {
		return nil, err
	}
	return &pulumirpc.GetRequiredPackagesResponse{}, nil
}

func (h *host) InstallDependencies(
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

func (h *host) GetProgramDependencies(
	context.Context, *pulumirpc.GetProgramDependenciesRequest,
) (*pulumirpc.GetProgramDependenciesResponse, error) {
	return &pulumirpc.GetProgramDependenciesResponse{}, nil
}

func (h *host) Run(ctx context.Context, req *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
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
		{"engine", h.engine},
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
	config, err := json.Marshal(req.GetConfig())
	if err != nil {
		return nil, err
	}
	secretKeys := req.GetConfigSecretKeys()
	if secretKeys == nil {
		secretKeys = []string{}
	}
	secrets, err := json.Marshal(secretKeys)
	if err != nil {
		return nil, err
	}
	if command.Env == nil {
		command.Env = os.Environ()
	}
	command.Env = append(
		command.Env, "PULUMI_CONFIG="+string(config), "PULUMI_CONFIG_SECRET_KEYS="+string(secrets))
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	err = command.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return &pulumirpc.RunResponse{}, nil
	case errors.As(err, &exit) && exit.ExitCode() == toldItsError:
		return &pulumirpc.RunResponse{Bail: true}, nil
	default:
		return &pulumirpc.RunResponse{Error: fmt.Sprintf("the program did not end well: %v", err)}, nil
	}
}

func (h *host) RunPlugin(req *pulumirpc.RunPluginRequest, server pulumirpc.LanguageRuntime_RunPluginServer) error {
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

// bound is a schema as the generators want it.
func bound(text string, loader schema.Loader) (*schema.Package, error) {
	var spec schema.PackageSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return nil, err
	}
	pkg, problems, err := schema.BindSpec(spec, loader, schema.ValidationOptions{AllowDanglingReferences: true})
	if err != nil {
		return nil, err
	}
	if problems.HasErrors() {
		return nil, problems
	}
	return pkg, nil
}

func (h *host) GeneratePackage(
	_ context.Context, req *pulumirpc.GeneratePackageRequest,
) (*pulumirpc.GeneratePackageResponse, error) {
	loader, err := schema.NewLoaderClient(req.GetLoaderTarget())
	if err != nil {
		return nil, err
	}
	defer loader.Close()
	pkg, err := bound(req.GetSchema(), loader)
	if err != nil {
		return nil, err
	}
	files, err := python.GeneratePackage("pulumi-language-python", pkg, req.GetExtraFiles(), loader)
	if err != nil {
		return nil, err
	}
	for name, content := range files {
		file := filepath.Join(req.GetDirectory(), name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return nil, err
		}
	}
	return &pulumirpc.GeneratePackageResponse{}, nil
}

// Link writes the SDKs' folders into the program's requirements.
func (h *host) Link(ctx context.Context, req *pulumirpc.LinkRequest) (*pulumirpc.LinkResponse, error) {
	venv, err := environment(req.GetInfo(), false)
	if err != nil {
		return nil, err
	}
	loader, err := schema.NewLoaderClient(req.GetLoaderTarget())
	if err != nil {
		return nil, err
	}
	defer loader.Close()
	folders, instructions := map[string]string{}, "In the program:\n\n"
	for _, dependency := range req.GetPackages() {
		name, err := importName(ctx, dependency.GetPackage(), loader)
		if err != nil {
			return nil, err
		}
		folders[name] = dependency.GetPath()
		instructions += fmt.Sprintf("  import %s\n", name)
	}
	if err := venv.LinkPackages(ctx, folders); err != nil {
		return nil, err
	}
	return &pulumirpc.LinkResponse{ImportInstructions: instructions}, nil
}

func importName(
	ctx context.Context, dependency *pulumirpc.PackageDependency, loader schema.ReferenceLoader,
) (string, error) {
	descriptor := &schema.PackageDescriptor{Name: dependency.GetName(), DownloadURL: dependency.GetServer()}
	if dependency.GetVersion() != "" {
		version, err := semver.New(dependency.GetVersion())
		if err != nil {
			return "", err
		}
		descriptor.Version = version
	}
	reference, err := schema.LoadPackageReferenceV2(ctx, loader, descriptor)
	if err != nil {
		return "", err
	}
	pkg, err := reference.Definition()
	if err != nil {
		return "", err
	}
	if err := pkg.ImportLanguages(map[string]schema.Language{"python": python.Importer}); err != nil {
		return "", err
	}
	if info, said := pkg.Language["python"].(python.PackageInfo); said && info.PackageName != "" {
		return info.PackageName, nil
	}
	return python.PyPack(reference.Namespace(), reference.Name()), nil
}
