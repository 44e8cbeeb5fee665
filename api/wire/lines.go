package wire

import (
	"net/http"
	"time"
)

// NewLines returns a stream of JSON objects to w, one per line (application/x-ndjson). It writes
// nothing yet. Lines have no comments; while the stream is silent, it sends the object that idle
// returns, which clients ignore.
func NewLines(w http.ResponseWriter, idle func() any) *Events {
	return &Events{w: w, flush: http.NewResponseController(w).Flush, last: time.Now(), idle: idle}
}

// sendLine sends v as one line.
func (e *Events) sendLine(v any) error {
	e.buf.Reset()
	if err := Encode(&e.buf, v); err != nil {
		return err
	}
	return e.write()
}
