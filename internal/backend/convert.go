package backend

import (
	"context"
	"errors"

	"github.com/heftai/heft/meta"
)

// ErrIncompressible reports that a matrix does not fit into the bytes of an exact format. Use it
// as it is stored.
var ErrIncompressible = errors.New("the weights vary too much to be coded in fewer bytes")

// A Converter converts matrices of floats to another format when they are loaded. It is safe for
// concurrent use.
type Converter interface {
	// Format returns the format of converted matrices.
	Format() meta.QuantFormat
	// Layout names the order of the converted bytes. A file of converted matrices is only valid with
	// the layout that it was written in.
	Layout() string
	// Converted returns p as it will be after the conversion, without Data, and the size of the
	// converted bytes. It returns an error if p cannot be converted.
	Converted(p Part) (Part, int64, error)
	// RowGroup returns the number of rows that are converted together. A matrix may be converted in
	// several calls if each of them, except the last, has a multiple of RowGroup rows.
	RowGroup() int
	// Convert converts src, the elements of p, to dst. It uses all of the converter's threads. It
	// returns an error if the format cannot represent a value of src, ErrIncompressible for an
	// exact format, a *FaultError if src is a mapping that cannot be read, and ctx's error if ctx
	// ends. dst is then undefined.
	Convert(ctx context.Context, dst, src []byte, p *Part) error
}

// A Deinterleaver is a [Converter] to rows that can read the results of the host's converter to the
// same format.
type Deinterleaver interface {
	Converter
	// Deinterleave writes the rows of src to dst. src is a matrix, or whole groups of its rows, in
	// the order of the host's converter. p is the part of src. Deinterleave uses all of the
	// converter's threads, and returns a *FaultError if src is a mapping that cannot be read.
	Deinterleave(dst, src []byte, p *Part) error
}
