package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestExample(t *testing.T) {
	var b bytes.Buffer
	if err := write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	out := b.String()
	for want, n := range map[string]int{
		"initial model weight is [-0.0075, 0.5364]":         1,
		"[0.0953, 0.4337]":                                  2, // accumulated and whole
		"[0.2117, 0.3172]":                                  3, // two ranks, and whole
		"device 0: 36 items in the local batch, 36 in all":  1,
		"device 0: 52 items in the local batch, 136 in all": 1,
		"device 1: 84 items in the local batch, 136 in all": 1,
	} {
		if got := strings.Count(out, want); got != n {
			t.Errorf("%q comes %d times, want %d:\n%s", want, got, n, out)
		}
	}
}
