package kernels

import (
	"fmt"
	"strings"

	"github.com/heftai/heft/internal/kernels/attention"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/grad"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/optimizer"
	"github.com/heftai/heft/internal/kernels/qgemm"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/kernels/sampling"
	"github.com/heftai/heft/internal/kernels/vector"
)

// Set is one variant of the kernels, family by family. It has no state: any number of goroutines
// may use it at once.
type Set struct {
	isa.Variant

	Vector    vector.Kernels
	GEMV      gemv.Kernels
	GEMM      gemm.Kernels
	Quant     quant.Kernels
	QGEMM     qgemm.Kernels
	Coded     coded.Kernels
	Attention attention.Kernels
	Grad      grad.Kernels
	Optimizer optimizer.Kernels
	Sampling  sampling.Kernels
}

// For returns the kernels of v.
func For(v isa.Variant) *Set {
	return &Set{
		Variant: v, Vector: vector.For(v), GEMV: gemv.For(v), GEMM: gemm.For(v), Quant: quant.For(v), QGEMM: qgemm.For(v), Coded: coded.For(v),
		Attention: attention.For(v), Grad: grad.For(v), Optimizer: optimizer.For(v), Sampling: sampling.For(v),
	}
}

// Names lists the variants that this processor runs, best first.
func Names() []string {
	var names []string
	for _, v := range isa.Available() {
		names = append(names, v.Name)
	}
	return names
}

// Select returns the variant called name, or the best one where name is empty. The error lists the
// variants that this processor runs.
func Select(name string) (*Set, error) {
	for _, v := range isa.Available() {
		if name == "" || v.Name == name {
			return For(v), nil
		}
	}
	return nil, fmt.Errorf("kernels: no variant %q on this processor (it has %s)", name, strings.Join(Names(), ", "))
}
