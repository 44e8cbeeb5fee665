//go:build !amd64 || purego

package gemm

import "github.com/heftai/heft/internal/kernels/isa"

func opsOf(isa.Variant) ops { return goOps{} }

func grouperOf(isa.Variant) grouper { return nil }

func smallBatcherOf(isa.Variant) smallBatcher { return nil }

func rounderOf(isa.Variant) rounder { return nil }
