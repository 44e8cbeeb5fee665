//go:build !amd64 || purego

package qgemm

import "github.com/heftai/heft/internal/kernels/isa"

func summerOf(isa.Variant) summer { return goOps{} }

func minifloatOf(isa.Variant) minifloatKernels { return nil }

func integersOf(isa.Variant) integers { return nil }

func packerOf(isa.Variant) packer { return nil }

func rowerOf(isa.Variant) rower { return nil }
