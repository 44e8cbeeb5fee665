//go:build !amd64 || purego

package kernels

func available() []Set { return []Set{goSet()} }
