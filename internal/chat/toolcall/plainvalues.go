package toolcall

import (
	"bytes"
	"strings"
)

// spaces are the bytes of white space.
const spaces = " \t\r\n"

// A plainEnd is the kind of text after a value without quotes.
type plainEnd uint8

const (
	notEnd   plainEnd = iota
	maybeEnd          // more bytes are needed
	nextKey
	endOfCall
)

// endsByLine reports whether the end of a call is a single byte, which ends values only if it is on
// a line of its own.
func (t *tags) endsByLine(end string) bool {
	return t.plain != nil && len(end) == 1 && t.close == "" && strings.Contains(t.plain.last, "\n")
}

// lineEnd is plainEnd for the end of a call on its own line. A line break or the end of the answer
// must follow it.
func (r *tagReader) lineEnd(held string) plainEnd {
	text := strings.TrimLeft(held, spaces)
	rest, ok := strings.CutPrefix(text, r.end)
	switch broken := strings.Contains(held[:len(held)-len(text)], "\n"); {
	case text == "", ok && broken && strings.Trim(rest, " \t\r") == "":
		return maybeOr(len(held) < maxName)
	case ok && broken && strings.Trim(rest, " \t\r") == "\n":
		return endOfCall
	}
	return notEnd
}

// plainByte reads a byte of a value without quotes. It holds back bytes that may end the value.
func (r *tagReader) plainByte(c byte, out []byte) ([]byte, verdict) {
	if begin := strings.TrimLeft(r.closing, spaces) + r.end; len(r.hold) == 0 && !isSpace(c) && c != r.tags.plain.next[0] && (begin == "" || c != begin[0]) {
		return r.addText(c, out), more
	}
	r.hold = append(r.hold, c)
	for len(r.hold) > 0 {
		end, key := r.plainEnd(string(r.hold))
		if (end == nextKey || end == endOfCall) && r.unfinished() {
			end = notEnd
		} else if end == notEnd && r.end == "" {
			if stop, maybe := r.stopOf(string(r.hold)); stop != "" {
				r.hold = r.hold[:0]
				return r.endText(out), r.stop(stop[:len(stop)-1])
			} else if maybe {
				return out, more
			}
		}
		switch end {
		case maybeEnd:
			return out, more
		case nextKey:
			r.hold = r.hold[:0]
			return r.beginKey([]byte(key), r.endText(out)), more
		case endOfCall:
			space := string(r.hold[:len(r.hold)-len(bytes.TrimLeft(r.hold, spaces))])
			if text, ok := strings.CutSuffix(space, r.tags.plain.last); ok {
				for i := range len(text) {
					out = r.addText(text[i], out)
				}
			}
			r.hold = r.hold[:0]
			return append(r.endText(out), '}'), done
		}
		out = r.addText(r.hold[0], out)
		r.hold = append(r.hold[:0], r.hold[1:]...)
	}
	return out, more
}

// plainEnd classifies held: it may be the end of the call after white space, or the text between a
// value and the next key with that key and its end.
func (r *tagReader) plainEnd(held string) (plainEnd, string) {
	maybe := false
	text, closing := strings.TrimLeft(held, spaces), strings.TrimLeft(r.closing, spaces)
	after, closed := strings.CutPrefix(text, closing)
	if closing != "" {
		after = strings.TrimLeft(after, spaces)
	}
	switch {
	case r.tags.endsByLine(r.end):
		end := r.lineEnd(held)
		if end == endOfCall {
			return end, ""
		}
		maybe = end == maybeEnd
	case closed && after == r.end && after != "":
		return endOfCall, ""
	case (closed && (after == "" || begins(r.end, after)) || begins(closing, text)) && len(held) < maxName:
		maybe = true
	}
	next := strings.TrimRight(r.tags.plain.next, " \t")
	if next == "" {
		next = r.tags.plain.next[:1]
	}
	if begins(next, held) {
		maybe = true
	} else if rest, ok := strings.CutPrefix(held, next); ok {
		rest = strings.TrimLeft(rest, " \t")
		if r.tags.counted != "" {
			name, numbered := r.uncounted(rest)
			if maybe = maybe || numbered && name == "" && len(held) < maxName; name == "" {
				return maybeOr(maybe), ""
			}
			rest = name
		}
		if key, ok := strings.CutSuffix(rest, r.tags.key); ok && r.mayBeKey(key, true) {
			return nextKey, key
		}
		maybe = maybe || len(held) < maxName && r.mayBeginKey(rest)
	}
	return maybeOr(maybe), ""
}

// maybeOr returns maybeEnd if maybe is true, and otherwise notEnd.
func maybeOr(maybe bool) plainEnd {
	if maybe {
		return maybeEnd
	}
	return notEnd
}

// uncounted returns text without the number and the text after the number. begins reports whether
// text may be a prefix of them; name is then "".
func (r *tagReader) uncounted(text string) (name string, begins bool) {
	rest := strings.TrimLeft(text, "0123456789")
	if rest == "" || len(rest) < len(text) && strings.HasPrefix(r.tags.counted, rest) {
		return "", true
	}
	name, ok := strings.CutPrefix(rest, r.tags.counted)
	if !ok || len(rest) == len(text) {
		return "", false
	}
	if name = strings.TrimLeft(name, " \t"); name == "" {
		return "", true
	}
	return name, false
}

// mayBeginKey reports whether text is a prefix of a parameter's name and its end.
func (r *tagReader) mayBeginKey(text string) bool {
	for n := min(len(text), len(r.tags.key)-1); n >= 0; n-- { // the beginning of what ends a key
		name, ok := strings.CutSuffix(text, r.tags.key[:n])
		if ok && r.mayBeKey(name, n > 0) {
			return true
		}
	}
	return text == ""
}

// mayBeKey reports whether name is the name of a parameter or, if whole is false, a prefix of one.
func (r *tagReader) mayBeKey(name string, whole bool) bool {
	if r.keys == nil {
		return isName(name)
	}
	for _, key := range r.keys {
		if key == name || !whole && begins(key, name) {
			return true
		}
	}
	return false
}
