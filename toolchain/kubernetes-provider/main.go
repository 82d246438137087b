// Command pulumi-resource-kubernetes serves Pulumi's Kubernetes provider from its published Go module.
//
// The module's own main package embeds two files that its release pipeline generates and does not publish;
// the toolchain copies their sources (schema.json, terraform-mapping.json) from the module's folder beside
// this file before it builds.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version"
)

//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var terraformMapping []byte

func main() {
	provider.Serve("kubernetes", version.Version, schema, terraformMapping)
}
