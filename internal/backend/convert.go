package backend

import (
	"context"
	"errors"

	"github.com/heftai/heft/meta"
)

// ErrIncompressible says that a matrix does not fit into the bytes of an exact format. Use it as it
// is stored.
var ErrIncompressible = errors.New("the weights vary too much to be coded in fewer bytes")

// A Converter converts matrices of floats to another format when they are loaded. Any goroutine
// may call its methods, several at a time.
type Converter interface {
	// Format returns the format of converted matrices.
	Format() meta.QuantFormat
	// Layout names the order of the converted bytes. A file of converted matrices is only valid with
	// the layout that it was written in.
	Layout() string
	// Converted returns p as it will be after the conversion, without Data, and the size of the
	// converted bytes. It fails if p cannot be converted.
	Converted(p Part) (Part, int64, error)
	// RowGroup returns the number of rows that are converted together. A matrix may be converted in
	// several calls if each of them, except the last, has a multiple of RowGroup rows.
	RowGroup() int
	// Convert converts src, the elements of p, to dst. It uses all of the converter's threads. It
	// fails if the format cannot hold a value of src, with ErrIncompressible if the format is exact, with a *FaultError if src is a mapping that
	// cannot be read, and with the error of ctx when that ends. dst is undefined then.
	Convert(ctx context.Context, dst, src []byte, p *Part) error
}

// A Separator is a [Converter] to rows that reads what the host's converter to the same format has made.
type Separator interface {
	Converter
	// Separate stores the rows of src at dst. src is a matrix, or whole groups of its rows, in the order of the host's
	// converter, of which p is the part. It uses all of the converter's threads, and fails with a *FaultError if src is a
	// mapping that cannot be read.
	Separate(dst, src []byte, p *Part) error
}
