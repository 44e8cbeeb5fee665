package cpu

import (
	"fmt"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/meta"
)

// KernelRow is a line of the table of kernels: what multiplies a large weight of a format by so many tokens
// in one pass.
type KernelRow struct {
	Variant   string `json:"variant"`   // of the kernels, such as avx512bf16
	Format    string `json:"format"`    // bfloat16, fp8, q4_0, …
	Precision string `json:"precision"` // auto or high, as --precision
	Role      string `json:"role"`      // generated or prompt tokens
	From      int    `json:"from"`      // tokens
	To        int    `json:"to"`        // tokens; 0: no limit
	Kernel    string `json:"kernel"`
}

// Tokens is the range of tokens as text: "1", "2-16", "17+".
func (r *KernelRow) Tokens() string {
	switch r.To {
	case 0:
		return fmt.Sprintf("%d+", r.From)
	case r.From:
		return fmt.Sprint(r.From)
	}
	return fmt.Sprintf("%d-%d", r.From, r.To)
}

// The weight that the table is told for, and the numbers of tokens that are looked at.
const (
	tableRows   = 4096
	tableTokens = 4096
)

// Kernels is the table by which a variant's kernels are chosen, for weights of 4096 × 4096 in each stored
// format: the rows of one format, precision and role follow one another by tokens. Weights with odd shapes may
// use other kernels. The error lists the variants that this processor runs.
func Kernels(variant string) ([]KernelRow, error) {
	set, err := kernels.Select(variant)
	if err != nil {
		return nil, err
	}
	return tableOf(set), nil
}

func tableOf(set *kernels.Set) (table []KernelRow) {
	for _, w := range storedWeights() {
		for _, m := range []mode{rounded, exact} {
			for _, role := range []backend.Role{backend.Generated, backend.Prompt} {
				row := KernelRow{Variant: set.Name, Format: w.name, Precision: precisionNames[m], Role: roleNames[role]}
				table = append(table, ranges(set, &w.matrix, m, role, row)...)
			}
		}
	}
	return table
}

var (
	precisionNames = map[mode]string{rounded: "auto", exact: "high"}
	roleNames      = map[backend.Role]string{backend.Generated: "generated", backend.Prompt: "prompt"}
)

// ranges are the rows of one weight, mode and role.
func ranges(set *kernels.Set, w *matrix, m mode, role backend.Role, row KernelRow) (rows []KernelRow) {
	last := noKernel
	for n := 1; n <= tableTokens; n++ {
		c := choice{set: set, w: w, tokens: n, mode: m, role: role}
		if k := c.kernel(); k != last {
			if len(rows) > 0 {
				rows[len(rows)-1].To = n - 1
			}
			row.From, row.Kernel = n, k.String()
			rows, last = append(rows, row), k
		}
	}
	return rows
}

// storedWeight is a weight without data.
type storedWeight struct {
	name   string
	format meta.QuantFormat
	matrix matrix
}

// storedWeights has a large weight of every format that the cpu multiplies, as it is held when it is used:
// converted ones are interleaved.
func storedWeights() (all []storedWeight) {
	for _, d := range []meta.DType{meta.BFloat16, meta.Float16, meta.Float32} {
		m := matrix{rows: tableRows, cols: tableRows, step: 1}
		m.Format, _ = format(d)
		all = append(all, storedWeight{d.String(), meta.QuantNone, m})
	}
	for f := meta.QuantNone + 1; ; f++ {
		p, ok := quant.Named(f.String())
		if !ok {
			return all
		}
		m := matrix{rows: tableRows, cols: tableRows, step: 1, transposed: f.Row().Layout == meta.InputsFirst}
		m.packed.Packing, m.packed.Width, m.packed.Rows, m.packed.Columns = p, tableRows, 128, 128
		if p == quant.MXFP4 {
			m.packed.Rows, m.packed.Columns = 1, quant.BlockColumns
		}
		if p.BlockBytes() > 0 {
			m.packed.Height = tableRows
		}
		all = append(all, storedWeight{f.String(), f, m})
	}
}
