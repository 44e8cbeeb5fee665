package batches

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
)

const (
	// maxLines is the maximum number of requests of a batch.
	maxLines = 50_000
	// maxErrors is the maximum number of errors that a batch lists.
	maxErrors = 100
)

// validate checks all lines of a file. It returns their number and the errors in order. It fails if
// the file cannot be read, or with the cause of ctx when ctx ends. It uses 16 bytes of memory per
// line.
func (b *Backend) validate(ctx context.Context, in *os.File, allowed func(string) error) (count int, wrong []*lineError, err error) {
	var ids customIDs
	all := newLines(io.NewSectionReader(in, 0, 1<<62))
	for {
		l, err := all.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, nil, fmt.Errorf("batches: %w", err)
		}
		if count++; count > maxLines {
			return count, []*lineError{{Code: "too_many_requests", Message: fmt.Sprintf("The file has more than %d requests.", maxLines), Line: &l.number}}, nil
		}
		id, err := b.check(ctx, in, l, allowed)
		var bad *lineError
		switch {
		case errors.As(err, &bad):
			bad.Line = &l.number
			if wrong = append(wrong, bad); len(wrong) == maxErrors {
				return count, wrong, nil
			}
		case err != nil:
			return 0, nil, err
		default:
			ids.add(id, l.number)
		}
	}
	if count == 0 {
		return 0, []*lineError{{Code: "empty_file", Message: "The input file is empty: it needs a line with a request."}}, nil
	}
	param := "custom_id"
	ids.repeated(func(first, second int) bool {
		if len(wrong) == maxErrors {
			return false
		}
		wrong = append(wrong, &lineError{Code: "duplicate_custom_id", Param: &param, Line: &second,
			Message: fmt.Sprintf("The custom_id of this line is that of line %d, too.", first)})
		return true
	})
	slices.SortStableFunc(wrong, func(a, b *lineError) int { return cmp.Compare(*a.Line, *b.Line) })
	return count, wrong, nil
}

// customIDs holds hashes of the lines' ids to find ids that occur twice. It uses 16 bytes per line.
type customIDs []customID

type customID struct {
	hash uint64
	line int
}

func (c *customIDs) add(id string, line int) {
	sum := sha256.Sum256([]byte(id))
	*c = append(*c, customID{binary.LittleEndian.Uint64(sum[:]), line})
}

// repeated calls f with each line whose id an earlier line has, and with that earlier line, until f
// returns false.
func (c customIDs) repeated(f func(first, second int) bool) {
	slices.SortFunc(c, func(a, b customID) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.line, b.line)) })
	for i := 1; i < len(c); i++ {
		if c[i].hash == c[i-1].hash && !f(c[i-1].line, c[i].line) {
			return
		}
	}
}

// check returns the custom_id of a line, even of an invalid one if it has an id. It waits until
// there is memory to read the line.
func (b *Backend) check(ctx context.Context, in io.ReaderAt, l line, allowed func(string) error) (id string, err error) {
	for {
		err = b.read(ctx, in, l, func(_ context.Context, text []byte) error {
			c, err := parseLine(text, allowed)
			id = c.CustomID
			return err
		})
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		var full *refused
		switch {
		case !errors.As(err, &full):
			return id, err
		case full.status != http.StatusServiceUnavailable:
			return "", wrongLine("line_too_long", "", "This server has too little memory for a line of %d bytes.", l.size)
		}
	}
}

// allow returns the check of a line's url. The url must be endpoint or, if endpoint is "", any
// endpoint of b.
func (b *Backend) allow(endpoint string) func(string) error {
	return func(url string) error {
		if endpoint != "" && url != endpoint {
			return wrongLine("mismatched_endpoint", "url", "Invalid value for 'url': got %.100q, the endpoint of the batch is %q.", url, endpoint)
		}
		if b.Endpoints[url] == nil {
			return wrongLine("invalid_url", "url", "Invalid value for 'url': got %.100q, which is not an endpoint of a batch.", url)
		}
		return nil
	}
}
