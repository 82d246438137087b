// Package host has what the language hosts here share.
//
// Upstream's own hosts are modules that are not published, or not any more. These are gRPC around the parts of Pulumi
// that are: environments, package managers and the generators of SDKs, of the CLI's own version.
package host

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// How a program ends that has told its error itself; the SDKs of Python and Node.js agree.
const toldItsError = 32

// Base is a host that knows no language yet.
type Base struct {
	pulumirpc.UnimplementedLanguageRuntimeServer
	// Engine is the address of the engine that started the host.
	Engine string
}

// Main serves a host until its engine is gone.
func Main(made func(base Base) (pulumirpc.LanguageRuntimeServer, error)) {
	// A YAML host with an older engine inside says the options of a runtime here too; the requests have them all.
	for _, name := range []string{"root", "toolchain", "virtualenv", "typechecker", "tracing"} {
		flag.String(name, "", "read from the requests")
	}
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintf(os.Stderr, "usage: %s ENGINE-ADDRESS\n", filepath.Base(os.Args[0]))
		os.Exit(2)
	}
	if err := serve(flag.Arg(0), made); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(engine string, made func(base Base) (pulumirpc.LanguageRuntimeServer, error)) error {
	runtime, err := made(Base{Engine: engine})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	stop := make(chan bool)
	go func() {
		<-ctx.Done()
		close(stop)
	}()
	if err := rpcutil.Healthcheck(ctx, engine, time.Second, cancel); err != nil {
		return err
	}
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: stop,
		Init: func(server *grpc.Server) error {
			pulumirpc.RegisterLanguageRuntimeServer(server, runtime)
			return nil
		},
	})
	if err != nil {
		return err
	}
	fmt.Println(handle.Port)
	return <-handle.Done
}

// GetPluginInfo has nothing to tell.
func (Base) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{}, nil
}

// Handshake has nothing to tell.
func (Base) Handshake(
	context.Context, *pulumirpc.LanguageHandshakeRequest,
) (*pulumirpc.LanguageHandshakeResponse, error) {
	return &pulumirpc.LanguageHandshakeResponse{}, nil
}

// GetProgramDependencies lists none: they are asked for by `pulumi about` alone.
func (Base) GetProgramDependencies(
	context.Context, *pulumirpc.GetProgramDependenciesRequest,
) (*pulumirpc.GetProgramDependenciesResponse, error) {
	return &pulumirpc.GetProgramDependenciesResponse{}, nil
}

// Option is a runtime's option of Pulumi.yaml that must be a text; empty where it is not said.
func Option(info *pulumirpc.ProgramInfo, name string) (string, error) {
	value, said := info.GetOptions().AsMap()[name]
	if !said {
		return "", nil
	}
	if text, isText := value.(string); isText {
		return text, nil
	}
	return "", fmt.Errorf("the option %s of the runtime must be a text", name)
}

// Plugin is what an SDK says of the plugin that it needs.
type Plugin struct {
	Resource bool   `json:"resource"`
	Name     string `json:"name"`
	Version  string `json:"version"`
	Server   string `json:"server"`
}

// Required tells the engine of the plugins that a program's SDKs need. It starts the same where the plugin itself has a
// resource of its own, whose version and address no program says.
func Required(plugins []Plugin) *pulumirpc.GetRequiredPackagesResponse {
	required := &pulumirpc.GetRequiredPackagesResponse{}
	for _, each := range plugins {
		if each.Resource && each.Name != "" {
			required.Packages = append(required.Packages, &pulumirpc.PackageDependency{
				Name: each.Name, Kind: "resource", Version: each.Version, Server: each.Server,
			})
		}
	}
	return required
}

// Run runs a program by its command, with the stack's configuration in the environment.
func Run(command *exec.Cmd, req *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
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

// Generate writes the SDK that a generator makes of a schema.
func Generate(
	req *pulumirpc.GeneratePackageRequest,
	generate func(pkg *schema.Package, loader schema.ReferenceLoader) (map[string][]byte, error),
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
	files, err := generate(pkg, loader)
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

// Link hands each package of a program with the folder of its SDK to a function, which gives a line of a program that
// imports it.
func Link(
	ctx context.Context,
	req *pulumirpc.LinkRequest,
	languages map[string]schema.Language,
	link func(pkg *schema.Package, folder string) (string, error),
) (*pulumirpc.LinkResponse, error) {
	loader, err := schema.NewLoaderClient(req.GetLoaderTarget())
	if err != nil {
		return nil, err
	}
	defer loader.Close()
	instructions := "In the program:\n\n"
	for _, dependency := range req.GetPackages() {
		pkg, err := definition(ctx, dependency.GetPackage(), loader)
		if err != nil {
			return nil, err
		}
		if err := pkg.ImportLanguages(languages); err != nil {
			return nil, err
		}
		line, err := link(pkg, dependency.GetPath())
		if err != nil {
			return nil, err
		}
		instructions += fmt.Sprintf("  %s\n", line)
	}
	return &pulumirpc.LinkResponse{ImportInstructions: instructions}, nil
}

func definition(
	ctx context.Context, dependency *pulumirpc.PackageDependency, loader schema.ReferenceLoader,
) (*schema.Package, error) {
	descriptor := &schema.PackageDescriptor{Name: dependency.GetName(), DownloadURL: dependency.GetServer()}
	if dependency.GetVersion() != "" {
		version, err := semver.New(dependency.GetVersion())
		if err != nil {
			return nil, err
		}
		descriptor.Version = version
	}
	reference, err := schema.LoadPackageReferenceV2(ctx, loader, descriptor)
	if err != nil {
		return nil, err
	}
	return reference.Definition()
}
