//go:build !linux

package kerneltest

import "testing"

// Uncached returns the memory for BesideReads.
func Uncached(*testing.B) []byte {
	data := make([]byte, BenchWeights)
	for i := range data {
		data[i] = 0x3c
	}
	return data
}
