// Package kv holds tests only: the KV cache of package dispatch takes what weights leave, releases pages behind windows, and stored
// pages have the bits of computed ones.
package kv
