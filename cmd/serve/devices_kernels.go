package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/kernels"
)

// kernelTable is the table by which kernels are chosen, of all variants of this processor. It is an
// error if the processor lacks a variant.
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

// variant is the one whose kernels are printed.
func (c *devicesCmd) variant() (string, error) {
	set, err := kernels.Select(c.CPU)
	if err != nil {
		return "", cmdline.Misusef("HEFT_CPU: %w", err)
	}
	return set.Name, nil
}

// printKernels prints the rows of one variant: a line for each format and precision, with the
// kernels of each role by the number of tokens in a pass. First weights, then the KV cache.
func printKernels(w io.Writer, table []cpu.KernelRow, variant string) {
	operation := ""
	for len(table) > 0 {
		n, cells, first := 0, map[string][]string{}, table[0]
		for n < len(table) && sameLine(&table[n], &first) {
			r := &table[n]
			cells[r.Role] = append(cells[r.Role], r.Tokens()+" "+r.Kernel)
			n++
		}
		table = table[n:]
		if first.Variant != variant {
			continue
		}
		if first.Operation != operation {
			operation = first.Operation
			fmt.Fprintln(w)
			fmt.Fprintln(w, kernelTitles[operation](variant))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s", first.Format, first.Precision, strings.Join(cells["generated"], "; "), strings.Join(cells["prompt"], "; "))
		if training := cells["training"]; training != nil {
			fmt.Fprintf(w, "\t%s", strings.Join(training, "; "))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "\nElementwise operations, sampling, gradients and optimizer steps have one kernel each.")
}

// kernelTitles are the lines above the rows of an operation.
var kernelTitles = map[string]func(variant string) string{
	"linear": func(v string) string {
		return "kernels of " + v + " by tokens in a pass\nweights\tprecision\tgenerated tokens\tprompt tokens\ttraining"
	},
	"attention": func(string) string {
		return "attention by tokens of a sequence in a pass\nKV cache\tprecision\tgenerated tokens\tprompt tokens"
	},
}

// sameLine reports whether two rows are printed as one line.
func sameLine(a, b *cpu.KernelRow) bool {
	return a.Variant == b.Variant && a.Operation == b.Operation && a.Format == b.Format && a.Precision == b.Precision
}
