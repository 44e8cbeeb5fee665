// Package kv tests that the KV cache of package dispatch takes the memory that weights leave,
// that it releases pages behind attention windows, and that stored pages have the bits of
// computed ones.
package kv
