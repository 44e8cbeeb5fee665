// Package gguf tests that models in GGUF files, placed by package dispatch, give the reference's
// answers. The files are in dispatch/testdata/gguf.
package gguf
