//go:build !mpi || !cgo

package mpi

import (
	"errors"

	"github.com/heftai/heft/internal/collective"
)

// Built reports whether this build has MPI.
const Built = false

// Link is never made: this build has no MPI.
type Link struct{ collective.Link }

// Open fails: this build has no MPI.
func Open(onFail func(error)) (*Link, error) {
	return nil, errors.New("an MPI launcher started this process, and this build has no MPI: build it with -tags mpi, or use train launch")
}

// Close does nothing.
func (l *Link) Close(err error) {}
