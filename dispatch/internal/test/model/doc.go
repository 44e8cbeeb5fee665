// Package model tests what a model of package dispatch offers on every placement, such as
// generating, hooks, hidden states and drafts, and what its passes allocate.
package model
