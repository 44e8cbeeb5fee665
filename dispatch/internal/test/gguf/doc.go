// Package gguf holds tests only: models in GGUF files, placed by package dispatch, answer as the reference does. The
// files are in dispatch/testdata/gguf.
package gguf
