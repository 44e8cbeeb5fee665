package batches

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// lineBuffer is the number of bytes that are read at once to find lines.
const lineBuffer = 64 << 10

// A line is the position of a line in a JSONL file.
type line struct {
	number int   // from 1
	at     int64 // offset of its first byte
	size   int64 // bytes, without the end of the line
}

// lines splits a file into lines. Its memory does not depend on their length.
type lines struct {
	in     *bufio.Reader
	at     int64
	number int
}

func newLines(in io.Reader) *lines { return &lines{in: bufio.NewReaderSize(in, lineBuffer)} }

// next returns the next line that is not blank, or io.EOF at the end.
func (l *lines) next() (line, error) {
	for {
		found, blank, err := l.scan()
		if err != nil || !blank {
			return found, err
		}
	}
}

// scan returns the next line and reports whether it is blank.
func (l *lines) scan() (found line, blank bool, err error) {
	l.number++
	found, blank = line{number: l.number, at: l.at}, true
	for {
		piece, err := l.in.ReadSlice('\n')
		l.at += int64(len(piece))
		blank = blank && len(bytes.TrimSpace(piece)) == 0
		switch {
		case err == nil:
			found.size = l.at - found.at - 1
			return found, blank, nil
		case errors.Is(err, io.EOF) && l.at > found.at:
			found.size = l.at - found.at
			return found, blank, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return found, blank, err
		}
	}
}

// A call is the decoded request of a line.
type call struct {
	CustomID string
	URL      string
	Body     json.RawMessage
}

// lineError says what is wrong with a line. It is an element of a batch's list of errors.
type lineError struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Line    *int    `json:"line"`
}

func (e *lineError) Error() string { return e.Message }

// maxCustomID is the maximum length of a custom_id in bytes.
const maxCustomID = 512

func wrongLine(code, param, format string, args ...any) error {
	e := &lineError{Code: code, Message: fmt.Sprintf(format, args...)}
	if param != "" {
		e.Param = &param
	}
	return e
}

// parseLine decodes a line. allowed returns an error if the url may not be called. parseLine
// returns a *lineError for an invalid line.
func parseLine(b []byte, allowed func(url string) error) (call, error) {
	var raw struct {
		CustomID json.RawMessage `json:"custom_id"`
		Method   json.RawMessage `json:"method"`
		URL      json.RawMessage `json:"url"`
		Body     json.RawMessage `json:"body"`
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff")) // some editors on Windows write a byte order mark
	var kind *json.UnmarshalTypeError
	switch err := json.Unmarshal(b, &raw); {
	case errors.As(err, &kind):
		return call{}, wrongLine("invalid_json_line", "", "This line is not a JSON object: got JSON of type %s.", kind.Value)
	case err != nil:
		return call{}, wrongLine("invalid_json_line", "", "This line is not a JSON object: %v.", err)
	}
	var c call
	var method string
	for _, f := range []struct {
		name string
		raw  json.RawMessage
		to   *string
	}{{"custom_id", raw.CustomID, &c.CustomID}, {"method", raw.Method, &method}, {"url", raw.URL, &c.URL}} {
		if f.raw == nil {
			return c, wrongLine("missing_required_parameter", f.name, "Missing required parameter: '%s'.", f.name)
		}
		if json.Unmarshal(f.raw, f.to) != nil || *f.to == "" {
			return c, wrongLine("invalid_type", f.name, "Invalid value for '%s': expected a string that is not empty.", f.name)
		}
	}
	switch body := bytes.TrimSpace(raw.Body); {
	case len(c.CustomID) > maxCustomID:
		return c, wrongLine("invalid_value", "custom_id", "Invalid value for 'custom_id': it has %d bytes, expected at most %d.", len(c.CustomID), maxCustomID)
	case method != "POST":
		return c, wrongLine("invalid_method", "method", "Invalid value for 'method': got %.20q, expected \"POST\".", method)
	case len(body) == 0:
		return c, wrongLine("missing_required_parameter", "body", "Missing required parameter: 'body'.")
	case body[0] != '{':
		return c, wrongLine("invalid_type", "body", "Invalid type for 'body': expected an object.")
	default:
		c.Body = body
	}
	if err := allowed(c.URL); err != nil {
		return c, err
	}
	var stream struct {
		Stream json.RawMessage `json:"stream"`
	}
	if json.Unmarshal(c.Body, &stream) == nil && stream.Stream != nil && string(stream.Stream) != "false" && string(stream.Stream) != "null" {
		return c, wrongLine("invalid_value", "body.stream", "'stream' is not supported in a batch.")
	}
	return c, nil
}
