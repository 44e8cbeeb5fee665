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

// Set holds all kernels of one variant, by family. It is stateless and safe for concurrent use.
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

// Names returns the names of the variants that this processor supports, best first.
func Names() []string {
	var names []string
	for _, v := range isa.Available() {
		names = append(names, v.Name)
	}
	return names
}

// Select returns the variant with the given name, or the best one if name is empty. It returns an
// error that lists the supported variants if this processor does not support that one.
func Select(name string) (*Set, error) {
	for _, v := range isa.Available() {
		if name == "" || v.Name == name {
			return For(v), nil
		}
	}
	return nil, fmt.Errorf("kernels: no variant %q on this processor (it has %s)", name, strings.Join(Names(), ", "))
}
