package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/kernels"
)

// version is set by the release build.
var version = "0.1.0-dev"

// envCmd is train env.
type envCmd struct {
	File string `name:"config-file" help:"Show this configuration instead of the default one." placeholder:"FILE"`
	JSON bool   `name:"json" help:"Print one JSON object."`
}

// Run prints the information that a bug report should contain.
func (c *envCmd) Run(out cmdline.Output) error {
	host := dispatch.DescribeHost()
	rows := [][2]string{
		{"Heft version", version},
		{"Platform", runtime.GOOS + "/" + runtime.GOARCH},
		{"Go version", runtime.Version()},
		{"Processors", fmt.Sprintf("%d, of %d cores", host.CPUs, host.Cores)},
		{"Kernels", strings.Join(kernels.Names(), ", ")},
		{"System RAM", fmt.Sprintf("%.2f GB", float64(host.TotalBytes)/1e9)},
		{"Accelerator", "none: training runs on the CPU"},
	}
	for _, name := range slices.Sorted(slices.Values(os.Environ())) {
		if key, value, _ := strings.Cut(name, "="); strings.HasPrefix(key, "HEFT_") {
			if strings.Contains(key, "KEY") || strings.Contains(key, "TOKEN") {
				value = "(set)"
			}
			rows = append(rows, [2]string{key, value})
		}
	}
	found, path, err := findConfig(c.File)
	if c.JSON {
		all := map[string]any{"configuration": found}
		for _, r := range rows {
			all[strings.ReplaceAll(strings.ToLower(r[0]), " ", "_")] = r[1]
		}
		return errors.Join(err, json.NewEncoder(out).Encode(all))
	}
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "- %s: %s\n", r[0], r[1])
	}
	switch {
	case err != nil:
		fmt.Fprintf(&b, "- Configuration: %v\n", err)
	case found == nil:
		b.WriteString("- Configuration: not found\n")
	default:
		fmt.Fprintf(&b, "- Configuration: %s\n", path)
		for _, key := range slices.Sorted(maps.Keys(found)) {
			fmt.Fprintf(&b, "\t- %s: %v\n", key, found[key])
		}
	}
	_, err = fmt.Fprint(out, b.String())
	return err
}
