package cpu

import (
	"fmt"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/attention"
	"github.com/heftai/heft/internal/kernels/matmul"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/meta"
)

// KernelRow is a row of the table of kernels: the kernel that computes an operation on operands
// of a format, for a range of tokens in one pass.
type KernelRow struct {
	Variant   string `json:"variant"`   // kernel variant, such as avx512bf16
	Operation string `json:"operation"` // linear, or attention over the KV cache
	Format    string `json:"format"`    // of the weight or the KV cache: bfloat16, fp8, q4_0, …
	Precision string `json:"precision"` // auto or high, as for --precision; in training, whether products are rounded
	Role      string `json:"role"`      // generated tokens, prompt tokens, or training
	From      int    `json:"from"`      // smallest number of tokens; for attention, of one sequence
	To        int    `json:"to"`        // largest number of tokens; 0 for no limit
	Kernel    string `json:"kernel"`
}

// Tokens returns the range of tokens as text: "1", "2-16", "17+".
func (r *KernelRow) Tokens() string {
	switch r.To {
	case 0:
		return fmt.Sprintf("%d+", r.From)
	case r.From:
		return fmt.Sprint(r.From)
	}
	return fmt.Sprintf("%d-%d", r.From, r.To)
}

// The size of the weights in the table, and the largest number of tokens that it covers.
const (
	tableRows   = 4096
	tableTokens = 4096
)

// Kernels returns the kernels that a variant uses for weights of 4096 × 4096 in each stored
// format and for the formats of the KV cache. The rows of one format, precision and role are in
// order of tokens. Weights with unusual shapes may use other kernels. If this processor does not
// support the variant, the error lists the supported ones.
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
			for role := backend.Generated; role <= trainingRole; role++ {
				c := choice{set: set, w: &w.matrix, mode: m, role: role}
				if role == trainingRole {
					c.mode = trainingMode(w.dtype, m == rounded)
				}
				rows := ranges(c, KernelRow{Operation: "linear", Format: w.name, Precision: precisionNames[m]})
				table = append(table, rows...)
				if w.dtype == meta.BFloat16 && w.format == meta.QuantNone && role != trainingRole {
					table = append(table, codedRows(rows)...)
				}
			}
		}
	}
	for _, p := range storedPages() {
		for _, m := range []mode{rounded, exact} {
			for _, role := range []backend.Role{backend.Generated, backend.Prompt} {
				c := choice{set: set, k: &p.pages, v: &p.pages, mode: m, role: role}
				table = append(table, ranges(c, KernelRow{Operation: "attention", Format: p.name, Precision: precisionNames[m]})...)
			}
		}
	}
	return table
}

var (
	precisionNames = map[mode]string{rounded: "auto", exact: "high"}
	roleNames      = map[backend.Role]string{backend.Generated: "generated", backend.Prompt: "prompt", trainingRole: "training"}
)

// ranges returns the rows of one choice, by tokens.
func ranges(c choice, row KernelRow) (rows []KernelRow) {
	row.Variant, row.Role = c.set.Name, roleNames[c.role]
	last := noKernel
	for c.tokens = 1; c.tokens <= tableTokens; c.tokens++ {
		if k := c.kernel(); k != last {
			if len(rows) > 0 {
				rows[len(rows)-1].To = c.tokens - 1
			}
			row.From, row.Kernel = c.tokens, k.String()
			if k == packedMatrices {
				row.Kernel = (k + kernel(matmul.KernelFor(c.set, c.mode == rounded, c.w.cols))).String()
			}
			rows, last = append(rows, row), k
		}
	}
	return rows
}

// storedPage is a page of keys or values without data.
type storedPage struct {
	name  string
	dtype meta.DType
	pages pages
}

// storedPages returns a page of each format that the KV cache supports.
func storedPages() (all []storedPage) {
	for _, d := range []meta.DType{meta.BFloat16, meta.Float16, meta.Float32} {
		f, _ := format(d)
		all = append(all, storedPage{d.String(), d, pages{format: f, tokens: attention.PagedTokens}})
	}
	return append(all, storedPage{meta.QuantQ8.String(), meta.Int8, pages{blocks: 1, tokens: attention.PagedTokens}})
}

// storedWeight is a weight without data.
type storedWeight struct {
	name   string
	dtype  meta.DType // of the values or the codes
	format meta.QuantFormat
	matrix matrix
}

// storedWeights returns a large weight of every format that the cpu backend multiplies, in the
// layout used for it: converted weights are interleaved.
func storedWeights() (all []storedWeight) {
	for _, d := range []meta.DType{meta.BFloat16, meta.Float16, meta.Float32} {
		m := matrix{rows: tableRows, cols: tableRows, step: 1}
		m.Format, _ = format(d)
		all = append(all, storedWeight{d.String(), d, meta.QuantNone, m})
	}
	for _, f := range meta.QuantFormats() {
		m := matrix{rows: tableRows, cols: tableRows, step: 1, transposed: f.Row().Layout == meta.InputsFirst}
		q := f.Usual(tableRows, tableRows)
		m.packed.Width, m.packed.Rows, m.packed.Columns = tableRows, q.Rows, q.Columns
		m.packed.Packing, _ = quant.Named(f.String())
		if f.Row().Convert {
			m.packed.Height = tableRows
		}
		all = append(all, storedWeight{f.String(), f.Row().Codes.DTypes[0], f, m})
	}
	return all
}
