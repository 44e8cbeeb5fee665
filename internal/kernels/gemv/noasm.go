//go:build !amd64 || purego

package gemv

import "github.com/heftai/heft/internal/kernels/isa"

func opsOf(isa.Variant) ops { return goOps{} }

func halverOf(isa.Variant) halver { return nil }

func pairsOf(isa.Variant) pairer { return nil }
