package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// maxBody is the maximum size of a body in bytes. A prompt of a million token ids fits.
	maxBody = 32 << 20
	// firstRead is the number of bytes that are read first of a body without an announced size.
	firstRead = 16 << 10
	// roomWait is the maximum time that a request waits for memory.
	roomWait = 10 * time.Second
	// textCopies is the number of copies of a body's text that are in memory while it is decoded,
	// in addition to the body.
	textCopies = 2
	// smallWork is the minimum memory that decoding a body takes.
	smallWork = 16 << 10
)

// Streams wraps next for requests whose body is read in pieces and not kept in memory. The size of
// the body is not limited here. The memory of such a request is n bytes, that of the pieces. Errors
// are handled as by Limit.
func (m *Memory) Streams(n int, write ErrorWriter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := m.claim(r.Context(), int64(requestBytes+n))
		if err := r.Context().Err(); !ok && err != nil {
			write(w, Closed(err))
			return
		}
		if !ok {
			RejectUnread(w, r, write, errFull())
			return
		}
		defer c.end()
		r = r.WithContext(context.WithValue(r.Context(), claimKey{}, c))
		r.Body = m.arriving(w, r)
		defer r.Body.Close()
		next.ServeHTTP(w, r)
	})
}

// Limit wraps next and enforces the limits of each body and of all requests together. A body whose
// announced size exceeds the limit is rejected unread. A request waits until there is memory for
// its body. The body's memory is released when the handler closes the body; all other memory of the
// request's [Claim] is released when the handler returns. Errors are written by the ErrorWriter
// that errorsOf returns. A request without a body does not wait; its claim only has the memory that
// the handler reserves.
func (m *Memory) Limit(errorsOf func(*http.Request) ErrorWriter) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength == 0 {
				c := &Claim{m: m, ctx: r.Context()}
				defer c.end()
				next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), claimKey{}, c)))
				return
			}
			if err := errEncoded(r); err != nil {
				RejectUnread(w, r, errorsOf(r), err)
				return
			}
			if r.ContentLength > m.MaxBody() {
				RejectUnread(w, r, errorsOf(r), errTooLarge(m.MaxBody()))
				return
			}
			first := r.ContentLength
			if first < 0 {
				first = firstRead
			}
			c, ok := m.claim(r.Context(), requestBytes+first)
			if err := r.Context().Err(); !ok && err != nil {
				errorsOf(r)(w, Closed(err))
				return
			}
			if !ok {
				RejectUnread(w, r, errorsOf(r), errFull())
				return
			}
			defer c.end()
			body := &claimedBody{ReadCloser: http.MaxBytesReader(w, m.arriving(w, r), m.MaxBody()), claim: c, announced: r.ContentLength, taken: first}
			defer body.Close()
			r = r.WithContext(context.WithValue(r.Context(), claimKey{}, c))
			r.Body = body
			next.ServeHTTP(w, r)
		})
	}
}

// errEncoded returns an error if the body of r is compressed.
func errEncoded(r *http.Request) error {
	for _, encodings := range r.Header.Values("Content-Encoding") {
		for encoding := range strings.SplitSeq(encodings, ",") {
			if encoding = strings.TrimSpace(encoding); encoding != "" && !strings.EqualFold(encoding, "identity") {
				return &Error{Kind: Encoded, Message: fmt.Sprintf("The body of your request has the Content-Encoding %.40q, which is not supported: send it uncompressed.", encoding)}
			}
		}
	}
	return nil
}

// claimedBody is a body whose memory is reserved. It is for use by one goroutine.
type claimedBody struct {
	io.ReadCloser
	claim     *Claim
	announced int64 // its size, -1 if unknown
	taken     int64 // bytes reserved for it

	texts   *TextLimit // nil: none
	watch   textWatch
	refused error // the error of a text that is too long
}

func (b *claimedBody) limitTexts(l *TextLimit) {
	if l != nil && l.Bytes > 0 {
		b.texts, b.watch = l, textWatch{most: l.Bytes}
	}
}

// Read reads the body until a text is too long.
func (b *claimedBody) Read(p []byte) (int, error) {
	const piece = 64 << 10
	if b.texts != nil && len(p) > piece {
		p = p[:piece]
	}
	n, err := b.ReadCloser.Read(p)
	if b.texts != nil && b.refused == nil {
		if field := b.watch.push(p[:n]); field != "" {
			b.refused = b.texts.Refuse(field, b.watch.count)
			return n, b.refused
		}
	}
	return n, err
}

// dropRest releases the body's memory and reads the body to its end, because many clients send the
// whole body before they read.
func (b *claimedBody) dropRest() {
	b.claim.drop(b.taken)
	b.taken = 0
	_, _ = io.Copy(io.Discard, b.ReadCloser) // an error ends the connection, too
}

// Close releases the body's memory. It may be called more than once.
func (b *claimedBody) Close() error {
	b.claim.drop(b.taken)
	b.taken = 0
	return b.ReadCloser.Close()
}

// reserve reserves n bytes for the body.
func (b *claimedBody) reserve(n int) error {
	if err := b.claim.Keep(n); err != nil {
		return err
	}
	b.taken += int64(n)
	return nil
}

// readAll reads b. It reserves memory before it uses it.
func (b *claimedBody) readAll() ([]byte, error) {
	if b.announced >= 0 {
		out := make([]byte, b.announced)
		n, err := io.ReadFull(b, out)
		if err != nil {
			return out[:n], err
		}
		_, err = io.ReadFull(b, make([]byte, 1)) // reads the end of the body
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return out, err
	}
	out := make([]byte, 0, firstRead)
	for {
		n, err := b.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if len(out) == cap(out) {
			old, size, most := cap(out), 2*cap(out), int(b.claim.m.MaxBody())
			if size >= most {
				size = most + 1 // one more byte, to detect a larger body
			}
			if err := b.reserve(size); err != nil {
				return out, err
			}
			out = append(make([]byte, 0, size), out...)
			b.claim.drop(int64(old))
			b.taken -= int64(old)
		}
	}
}

// ReadBody reads a body to its end. Errors are of type *Error: the body is too large, malformed or
// incomplete, there is no memory for it, or ctx has ended.
func ReadBody(ctx context.Context, body io.Reader) ([]byte, error) {
	return ReadBodyWithin(ctx, body, nil)
}

// ReadBodyWithin is [ReadBody] for a body whose prompt has a limit. Once a text has exceeded it,
// the rest of the body is discarded and its memory is released. The error is then that of
// texts.Refuse.
func ReadBodyWithin(ctx context.Context, body io.Reader, texts *TextLimit) ([]byte, error) {
	var b []byte
	var err error
	if claimed, ok := body.(*claimedBody); ok {
		claimed.limitTexts(texts)
		b, err = claimed.readAll()
		if claimed.refused != nil {
			claimed.dropRest()
			return nil, claimed.refused
		}
	} else {
		b, err = io.ReadAll(body)
	}
	if err == nil {
		return b, nil
	}
	var own *Error
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &own):
		return nil, own
	case errors.As(err, &large):
		return nil, errTooLarge(large.Limit)
	case errors.Is(err, io.ErrUnexpectedEOF): // the client may still read
		return nil, &Error{Kind: Invalid, Message: "The body of your request ended early.", Err: err}
	case ctx.Err() != nil:
		return nil, Closed(err)
	}
	return nil, &Error{Kind: Invalid, Message: "We could not read the body of your request: " + err.Error() + ".", Err: err}
}

func errTooLarge(limit int64) *Error {
	message := fmt.Sprintf("The body of your request is too large: this server reads at most %d bytes.", limit)
	if limit < maxBody {
		message += " Shorten it, or start the server with a larger --max-memory."
	}
	return &Error{Kind: TooLarge, Message: message}
}

func errTooMuch() *Error {
	return &Error{Kind: TooLarge, Message: "Your request takes more memory than this server has for requests: shorten it, or start the server with a larger --max-memory."}
}

// errLargeAnswer returns the error for an answer that is sent at once if there is no memory to
// collect it.
func errLargeAnswer() *Error {
	return &Error{Kind: Overloaded, RetryAfter: time.Second, Message: "The server has no memory left for this answer: " +
		"stream it, or ask for fewer tokens, choices or log-probabilities."}
}

// Closed returns the error of a request whose client has closed the connection, with its cause. A
// client sees it only if it has closed just one direction.
func Closed(cause error) *Error {
	return &Error{Kind: Interrupted, Message: "The client closed the request: keep the connection open in both directions until it is answered.", Err: cause}
}

func errFull() *Error {
	return &Error{Kind: Overloaded, RetryAfter: time.Second,
		Message: "The server has as many requests as it has memory for; retry after 1 s."}
}

// ReadFields reads the body of a request that names no model, and calls decode with its fields. For
// a description (see [Describing]) it calls decode with fields that describe. It returns the first
// error of a field.
func ReadFields(r *http.Request, decode func(*Fields)) error {
	ctx := r.Context()
	f := DescriptionOf(ctx)
	if f == nil {
		defer r.Body.Close()
		b, err := ReadBody(ctx, r.Body)
		if err != nil {
			return err
		}
		if f, err = ParseFields(b); err != nil {
			return err
		}
		claim := ClaimOf(ctx)
		defer claim.WorkDone()
		f.CountIn(claim)
	}
	decode(f)
	return f.Err()
}
