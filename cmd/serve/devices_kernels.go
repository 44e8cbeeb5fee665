package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/kernels"
)

// kernelTable returns the table of kernels for all given variants. It returns an error if the
// processor lacks one.
func kernelTable(variants []string) (table []cpu.KernelRow, err error) {
	for _, v := range variants {
		rows, err := cpu.Kernels(v)
		if err != nil {
			return nil, err
		}
		table = append(table, rows...)
	}
	return table, nil
}

// variant returns the variant whose kernels are printed.
func (c *devicesCmd) variant() (string, error) {
	set, err := kernels.Select(c.CPU)
	if err != nil {
		return "", cmdline.Misusef("--cpu: %w", err)
	}
	return set.Name, nil
}

// printKernels prints the kernels of one variant: for each format, precision and role of tokens, a
// line with the kernels by the number of tokens in a pass. Formats with the same kernels share
// their lines. Weights come first, then the KV cache.
func printKernels(w io.Writer, table []cpu.KernelRow, variant string) {
	for _, operation := range []string{"linear", "attention"} {
		fmt.Fprintf(w, "\n"+kernelTitles[operation]+"\n", variant)
		for _, g := range groupKernels(table, operation, variant) {
			fmt.Fprintf(w, "  %s\n", strings.Join(g.formats, ", "))
			for _, line := range g.lines {
				fmt.Fprintf(w, "    %s\n", line)
			}
		}
	}
	fmt.Fprintln(w, "\nElementwise operations, sampling, gradients and optimizer steps have one kernel each.")
}

// kernelTitles are the headings of operations.
var kernelTitles = map[string]string{
	"linear":    "kernels of %s by tokens in a pass, for weights in",
	"attention": "attention of %s by tokens of a sequence in a pass, for a KV cache in",
}

// kernelGroup is a group of formats with the same kernels.
type kernelGroup struct {
	formats, lines []string
}

// groupKernels returns the groups of an operation, in the order of their first format.
func groupKernels(table []cpu.KernelRow, operation, variant string) (groups []kernelGroup) {
	cells, formats := map[string]map[[2]string][]string{}, []string{}
	for i := range table {
		r := &table[i]
		if r.Operation != operation || r.Variant != variant {
			continue
		}
		if cells[r.Format] == nil {
			cells[r.Format] = map[[2]string][]string{}
			formats = append(formats, r.Format)
		}
		key := [2]string{r.Precision, r.Role}
		cells[r.Format][key] = append(cells[r.Format][key], r.Tokens()+" "+r.Kernel)
	}
	for _, f := range formats {
		lines := kernelLines(cells[f])
		i := slices.IndexFunc(groups, func(g kernelGroup) bool { return slices.Equal(g.lines, lines) })
		if i < 0 {
			i, groups = len(groups), append(groups, kernelGroup{lines: lines})
		}
		groups[i].formats = append(groups[i].formats, f)
	}
	return groups
}

// kernelLines returns a line for each precision and role of a format. Precisions and roles with
// the same kernels share a line.
func kernelLines(cells map[[2]string][]string) (lines []string) {
	precisions := []string{"auto", "high"}
	if sameKernels(cells) {
		precisions = []string{""}
	}
	for _, precision := range precisions {
		byKernels, order := map[string][]string{}, []string{}
		for _, role := range []string{"generated", "prompt", "training"} {
			kernels := strings.Join(cells[[2]string{cmp.Or(precision, "auto"), role}], "; ")
			if kernels == "" {
				continue
			}
			if byKernels[kernels] == nil {
				order = append(order, kernels)
			}
			byKernels[kernels] = append(byKernels[kernels], role)
		}
		for _, kernels := range order {
			line := fmt.Sprintf("%-28s %s", strings.Join(byKernels[kernels], ", "), kernels)
			if precision != "" {
				line = fmt.Sprintf("%-4s  %s", precision, line)
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// sameKernels reports whether both precisions have the same kernels in each role.
func sameKernels(cells map[[2]string][]string) bool {
	for _, role := range []string{"generated", "prompt", "training"} {
		if !slices.Equal(cells[[2]string{"auto", role}], cells[[2]string{"high", role}]) {
			return false
		}
	}
	return true
}
