//go:build !amd64 || purego

package quant

import "github.com/heftai/heft/internal/kernels/isa"

func opsOf(isa.Variant) ops { return goOps{} }
