//go:build !amd64 || purego

package gemv

import "github.com/heftai/heft/internal/kernels/isa"

func opsOf(isa.Variant) ops { return goOps{} }

func mul(_ ops, p *Product) { goOps{}.mul(p) }

func splitterOf(isa.Variant) splitter { return nil }

func pairsOf(isa.Variant) pairer { return nil }
