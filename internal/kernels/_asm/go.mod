module github.com/heftai/heft/internal/kernels/_asm

go 1.26.0
