package wire

import (
	"net/http"
	"time"
)

// NewLines returns a stream of JSON objects to w, one per line (application/x-ndjson). It writes nothing. While the
// stream is silent, idle makes an object that clients ignore, as lines have no comments.
func NewLines(w http.ResponseWriter, idle func() any) *Events {
	return &Events{w: w, flush: http.NewResponseController(w).Flush, last: time.Now(), idle: idle}
}

// sendLine sends v in a line of its own.
func (e *Events) sendLine(v any) error {
	e.buf.Reset()
	if err := Encode(&e.buf, v); err != nil {
		return err
	}
	return e.write()
}
