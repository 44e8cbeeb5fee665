package openai

import (
	"bufio"
	"bytes"
	"io"
	"net/http"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/openaijson"
	"github.com/heftai/heft/api/wire"
)

// A whole is a response that is sent at once. Its log-probabilities are encoded token by token,
// because their JSON takes twenty times their memory.
type whole[C any] struct {
	body[C]
	// logProbs writes the log-probabilities of choice i, whose own field is nil. It is nil if there
	// are none.
	logProbs func(w *pieces, i int)
	// promptScores writes those of the prompt of choice i in place of a promptScores. It may be
	// nil.
	promptScores func(w *pieces, i int)
}

// send writes b as the response. It ignores errors, which mean that the client has disconnected.
func (b *whole[C]) send(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	b.write(w)
}

func (b *whole[C]) write(to io.Writer) {
	w := &pieces{Writer: bufio.NewWriterSize(to, 16<<10)}
	list, rest := b.Choices, b.body
	rest.Choices = []C{}
	// Strings in JSON have no unescaped quotes, so this text never occurs inside a string.
	const choices = `"choices":[`
	before, after, _ := bytes.Cut(bytes.Clone(w.encode(&rest)), []byte(choices))
	_, _ = w.Write(before)
	_, _ = w.WriteString(choices)
	for i := range list {
		w.comma(i)
		one := w.encode(&list[i])
		if b.logProbs != nil || b.promptScores != nil {
			one = bytes.Clone(one) // the pieces in between use the same buffer
		}
		if b.logProbs != nil {
			one = w.fill(one, `"logprobs":`, "null", func() { b.logProbs(w, i) })
		}
		_, _ = w.Write(b.scores(w, one, i))
	}
	_, _ = w.Write(b.scores(w, after, 0))
	_ = w.WriteByte('\n')
	_ = w.Flush()
}

// scores writes the log-probabilities of a prompt in their place, after the text before them. It
// returns the rest of raw.
func (b *whole[C]) scores(w *pieces, raw []byte, i int) []byte {
	if b.promptScores == nil {
		return raw
	}
	return w.fill(raw, `"prompt_logprobs":`, "{}", func() { b.promptScores(w, i) })
}

// pieces writes JSON in pieces. The bufio.Writer keeps errors.
type pieces struct {
	*bufio.Writer
	buf bytes.Buffer
}

// fill writes raw up to a field's placeholder value, and then the real value with write. It returns
// the rest of raw, or raw if it has no such field.
func (w *pieces) fill(raw []byte, field, value string, write func()) []byte {
	head, tail, found := bytes.Cut(raw, []byte(field+value))
	if !found {
		return raw
	}
	_, _ = w.Write(head)
	_, _ = w.WriteString(field)
	write()
	return tail
}

// encode returns the JSON of v. It is valid until the next call.
func (w *pieces) encode(v any) []byte {
	w.buf.Reset()
	if err := wire.Encode(&w.buf, v); err != nil {
		return []byte("null") // not reached: all values of answers have a JSON form
	}
	return bytes.TrimSuffix(w.buf.Bytes(), []byte("\n"))
}

// comma writes a comma before element i of a list, except before the first.
func (w *pieces) comma(i int) {
	if i > 0 {
		_ = w.WriteByte(',')
	}
}

// list writes a list of n elements.
func (w *pieces) list(n int, element func(i int) any) {
	_ = w.WriteByte('[')
	for i := range n {
		w.comma(i)
		_, _ = w.Write(w.encode(element(i)))
	}
	_ = w.WriteByte(']')
}

// chatLogProbs writes the JSON of newChatLogProbs.
func (w *pieces) chatLogProbs(n openaijson.TokenNames, tokens []generate.Token) {
	_, _ = w.WriteString(`{"content":`)
	w.list(len(tokens), func(i int) any { return openaijson.NewToken(n, &tokens[i]) })
	_, _ = w.WriteString(`,"refusal":null}`)
}

// completionLogProbs writes the log-probabilities of a prompt, which may be empty, and of the
// answer, whose text starts at offset.
func (w *pieces) completionLogProbs(n openaijson.TokenNames, prompt, tokens []generate.Token, offset int) {
	at := func(i int) *generate.Token {
		if i < len(prompt) {
			return &prompt[i]
		}
		return &tokens[i-len(prompt)]
	}
	count := len(prompt) + len(tokens)
	first := func(i int) bool { return i == 0 && len(prompt) > 0 } // it has no log-probability
	_, _ = w.WriteString(`{"tokens":`)
	w.list(count, func(i int) any { return legacyText(n, at(i).ID) })
	_, _ = w.WriteString(`,"token_logprobs":`)
	w.list(count, func(i int) any {
		if first(i) {
			return nil
		}
		return openaijson.Finite(at(i).LogProb)
	})
	_, _ = w.WriteString(`,"top_logprobs":`)
	w.list(count, func(i int) any {
		if first(i) {
			return nil
		}
		return legacyTop(n, at(i))
	})
	_, _ = w.WriteString(`,"text_offset":`)
	w.list(count, func(i int) any {
		if i < len(prompt) {
			return prompt[i].Offset
		}
		return offset + at(i).Offset
	})
	_ = w.WriteByte('}')
}
