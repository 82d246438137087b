// The language host pulumi-language-nodejs where it can't be downloaded: Pulumi's package managers (`nodejs/npm`) and its
// generator of SDKs (`codegen/nodejs`), of the CLI's own version.
//
// Upstream's own was never published as a Go module. What this one does, it does as that of 3.259: the same command
// line, the same SDK. It has no debugger, no policy packs, no plugins in Node.js and no synchronous functions of
// providers, and refuses the runtime's options that it does not know.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/pkg/v3/codegen/nodejs"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	"github.com/pulumi/pulumi/sdk/v3/nodejs/npm"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"

	"kai-anywhere/toolchain/language-hosts/host"
)

const packageManager = "packagemanager"

type nodeHost struct{ host.Base }

func main() {
	host.Main(func(base host.Base) (pulumirpc.LanguageRuntimeServer, error) { return &nodeHost{base}, nil })
}

// manager is what the option says, else what the program's lock file is of, else npm.
func manager(info *pulumirpc.ProgramInfo) (npm.PackageManagerType, error) {
	for name := range info.GetOptions().GetFields() {
		if name != packageManager {
			return "", fmt.Errorf("the option %s of runtime nodejs is not known here; %s is", name, packageManager)
		}
	}
	said, err := host.Option(info, packageManager)
	return npm.PackageManagerType(said), err
}

// GetRequiredPackages reads the package.json of what is installed for the program.
func (h *nodeHost) GetRequiredPackages(
	_ context.Context, req *pulumirpc.GetRequiredPackagesRequest,
) (*pulumirpc.GetRequiredPackagesResponse, error) {
	plugins := []host.Plugin{}
	for _, pattern := range []string{"*", "@*/*"} {
		files, err := filepath.Glob(
			filepath.Join(req.GetInfo().GetProgramDirectory(), "node_modules", pattern, "package.json"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			var sdk struct {
				Pulumi host.Plugin `json:"pulumi"`
			}
			// What has something else there is no SDK.
			if json.Unmarshal(text, &sdk) == nil {
				plugins = append(plugins, sdk.Pulumi)
			}
		}
	}
	return host.Required(plugins), nil
}

func (h *nodeHost) InstallDependencies(
	req *pulumirpc.InstallDependenciesRequest, server pulumirpc.LanguageRuntime_InstallDependenciesServer,
) error {
	chosen, err := manager(req.GetInfo())
	if err != nil {
		return err
	}
	closer, stdout, stderr, err := rpcutil.MakeInstallDependenciesStreams(server, req.GetIsTerminal())
	if err != nil {
		return err
	}
	defer closer.Close()
	if _, err := npm.Install(
		server.Context(), chosen, req.GetInfo().GetProgramDirectory(), false, stdout, stderr,
	); err != nil {
		return err
	}
	return closer.Close()
}

func (h *nodeHost) Run(ctx context.Context, req *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	if _, err := manager(req.GetInfo()); err != nil {
		return nil, err
	}
	runner, err := sdkRunner(ctx, req.GetInfo().GetProgramDirectory())
	if err != nil {
		return nil, err
	}
	arguments := []string{runner}
	for _, option := range [][2]string{
		{"monitor", req.GetMonitorAddress()},
		{"engine", h.Engine},
		{"organization", req.GetOrganization()},
		{"project", req.GetProject()},
		{"root-directory", req.GetInfo().GetRootDirectory()},
		{"stack", req.GetStack()},
		{"pwd", req.GetPwd()},
		{"parallel", strconv.Itoa(int(req.GetParallel()))},
	} {
		if option[1] != "" {
			arguments = append(arguments, "--"+option[0], option[1])
		}
	}
	if req.GetDryRun() {
		arguments = append(arguments, "--dry-run")
	}
	arguments = append(append(arguments, req.GetInfo().GetEntryPoint()), req.GetArgs()...)
	command := exec.CommandContext(ctx, "node", arguments...)
	command.Dir = req.GetPwd()
	command.Env = append(os.Environ(), "PULUMI_NODEJS_TYPESCRIPT=true")
	return host.Run(command, req)
}

// sdkRunner is what Pulumi's SDK runs programs with: Node.js itself says where the SDK lies for a program.
func sdkRunner(ctx context.Context, program string) (string, error) {
	command := exec.CommandContext(ctx, "node", "--print", "require.resolve('@pulumi/pulumi/cmd/run')")
	command.Dir = program
	said, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s has no @pulumi/pulumi; run `pulumi install`: %w", program, err)
	}
	return strings.TrimSpace(string(said)), nil
}

func (h *nodeHost) GeneratePackage(
	_ context.Context, req *pulumirpc.GeneratePackageRequest,
) (*pulumirpc.GeneratePackageResponse, error) {
	return host.Generate(req, func(pkg *schema.Package, loader schema.ReferenceLoader) (map[string][]byte, error) {
		return nodejs.GeneratePackage(
			"pulumi-language-nodejs", pkg, req.GetExtraFiles(), req.GetLocalDependencies(), req.GetLocal(), loader)
	})
}

// Link writes the SDKs' folders into the program's package.json.
func (h *nodeHost) Link(ctx context.Context, req *pulumirpc.LinkRequest) (*pulumirpc.LinkResponse, error) {
	chosen, err := manager(req.GetInfo())
	if err != nil {
		return nil, err
	}
	folder := req.GetInfo().GetProgramDirectory()
	resolved, err := npm.ResolvePackageManager(chosen, folder)
	if err != nil {
		return nil, err
	}
	languages := map[string]schema.Language{"nodejs": nodejs.Importer}
	return host.Link(ctx, req, languages, func(pkg *schema.Package, sdk string) (string, error) {
		name := packageName(pkg)
		line := fmt.Sprintf("import * as sdk from %q;", name)
		return line, resolved.Link(ctx, folder, name, sdk)
	})
}

func packageName(pkg *schema.Package) string {
	if info, said := pkg.Language["nodejs"].(nodejs.NodePackageInfo); said && info.PackageName != "" {
		return info.PackageName
	}
	if pkg.Namespace != "" {
		return fmt.Sprintf("@%s/%s", pkg.Namespace, pkg.Name)
	}
	return "@pulumi/" + pkg.Name
}
