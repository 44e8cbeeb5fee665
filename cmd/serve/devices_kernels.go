package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/kernels"
)

// kernelTable is the table by which kernels are chosen, of all variants of this processor. It is an error
// if the processor lacks a variant.
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

// printKernels prints the rows of one variant: a line for each format and precision, with the kernels of
// generated tokens and of prompts by the number of tokens in a pass.
func printKernels(w io.Writer, table []cpu.KernelRow, variant string) {
	fmt.Fprintf(w, "\nkernels of %s by tokens in a pass\n", variant)
	fmt.Fprintln(w, "weights\tprecision\tgenerated tokens\tprompt tokens")
	for len(table) > 0 {
		n, cells := 0, map[string][]string{}
		for n < len(table) && table[n].Format == table[0].Format && table[n].Precision == table[0].Precision && table[n].Variant == table[0].Variant {
			r := &table[n]
			cells[r.Role] = append(cells[r.Role], r.Tokens()+" "+r.Kernel)
			n++
		}
		if table[0].Variant == variant {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", table[0].Format, table[0].Precision, strings.Join(cells["generated"], "; "), strings.Join(cells["prompt"], "; "))
		}
		table = table[n:]
	}
}
