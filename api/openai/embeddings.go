package openai

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net/http"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/foreign"
	"github.com/heftai/heft/api/wire"
)

const (
	// maxInputs is the maximum number of inputs of a request, the same as OpenAI's.
	maxInputs = 2048
	// maxDimensions exceeds the width of any model.
	maxDimensions = 1 << 20
)

// embeddingRequest is the body of POST /v1/embeddings.
type embeddingRequest struct {
	generate.EmbedRequest
	model    *generate.Model
	base64   bool
	truncate int // tokens of an input that are kept; 0: all
}

// embeddings is the response.
type embeddings struct {
	Object string         `json:"object"`
	Data   []embedding    `json:"data"`
	Model  string         `json:"model"`
	Usage  embeddingUsage `json:"usage"`
}

type embedding struct {
	Object string `json:"object"`
	Index  int    `json:"index"`
	// Embedding is a list of numbers, or their bytes in base64.
	Embedding any `json:"embedding"`
}

type embeddingUsage struct {
	Prompt int `json:"prompt_tokens"`
	Total  int `json:"total_tokens"`
}

// Embeddings serves POST /v1/embeddings.
func (s *Server) Embeddings(w http.ResponseWriter, r *http.Request) {
	answer, err := s.embed(r)
	if err != nil {
		respond(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = answer.write(w) // the client has disconnected
}

// write encodes one embedding at a time, because the JSON of all is several times their size.
func (e *embeddings) write(w io.Writer) error {
	list := e.Data
	rest := *e
	rest.Data = []embedding{}
	var b bytes.Buffer
	if err := wire.Encode(&b, &rest); err != nil {
		return err
	}
	before, after, _ := bytes.Cut(b.Bytes(), []byte(`"data":[`))
	if _, err := w.Write(append(before[:len(before):len(before)], `"data":[`...)); err != nil {
		return err
	}
	for i := range list {
		one, err := json.Marshal(&list[i])
		if i > 0 {
			one = append([]byte(","), one...)
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(one); err != nil {
			return err
		}
	}
	_, err := w.Write(after)
	return err
}

func (s *Server) embed(r *http.Request) (*embeddings, error) {
	var q *embeddingRequest
	err := s.read(r, func(ctx context.Context, f *wire.Fields, m *generate.Model) (err error) {
		q, err = decodeEmbedding(ctx, f, m)
		return err
	})
	if err != nil {
		return nil, err
	}
	m := q.model
	vectors, usage, err := m.Embed(r.Context(), q.EmbedRequest)
	if err != nil {
		return nil, err
	}
	record(r.Context(), usage)
	answer := &embeddings{Object: "list", Data: []embedding{}, Model: m.Name, Usage: embeddingUsage{usage.Prompt, usage.Prompt}}
	for i, v := range vectors {
		e := embedding{Object: "embedding", Index: i, Embedding: v}
		if q.base64 {
			e.Embedding = inBase64(v)
		}
		answer.Data = append(answer.Data, e)
	}
	return answer, nil
}

// inBase64 returns the form that OpenAI's client requests: float32 in little-endian order, in
// base64.
func inBase64(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}

func decodeEmbedding(ctx context.Context, f *wire.Fields, m *generate.Model) (*embeddingRequest, error) {
	q := &embeddingRequest{model: m}
	q.Param = "input"
	format, special := "float", true
	f.String("encoding_format", &format)
	if q.base64 = format == "base64"; !q.base64 && format != "float" {
		f.Fail("encoding_format", "Invalid value for 'encoding_format': '%s', expected 'float' or 'base64'.", format)
	}
	if f.Has("dimensions") {
		f.Integer("dimensions", &q.Dimensions, 1, maxDimensions)
	}
	f.Bool("add_special_tokens", &special)
	foreign.Refuse(f, foreign.Embeddings)
	q.truncate = decodeTruncation(f, m)
	if q.truncate == 0 {
		f.FailWith(m.CheckIDs(f, "input"))
	}
	f.Like("input", "", []string{}, []int32{}, [][]int32{})
	raw, ok := f.Raw("input")
	if !ok {
		f.Fail("input", "Missing required parameter: 'input'.")
	}
	if f.Err() != nil {
		return nil, f.Err()
	}
	return q, q.decodeInput(ctx, raw, special)
}

// decodeInput reads a string, strings, ids or lists of ids.
func (q *embeddingRequest) decodeInput(ctx context.Context, raw json.RawMessage, special bool) error {
	texts, lists, ok := promptsOf(raw)
	if !ok {
		return wire.Invalidf("input", "Invalid type for 'input': expected a string, a list of strings, a list of token ids or a list of such lists.")
	}
	if n := len(texts) + len(lists); n == 0 || n > maxInputs {
		return wire.Invalidf("input", "Invalid value for 'input': %d inputs, expected 1 to %d.", n, maxInputs)
	}
	if err := generate.KeepIDs(ctx, lists); err != nil {
		return err
	}
	for i, text := range texts {
		if text == "" {
			return wire.Invalidf("input", "Invalid value for 'input': input %d is an empty string.", i)
		}
		list, err := q.model.EncodeLast(ctx, text, special, q.truncate)
		if err != nil {
			e := *generate.AsError(err, "input")
			if e.Field == "prompt" {
				e.Field = "input"
			}
			return &e
		}
		lists = append(lists, list)
	}
	for i, list := range lists {
		if len(list) == 0 {
			return wire.Invalidf("input", "Invalid value for 'input': input %d has no tokens.", i)
		}
	}
	for i, list := range lists {
		lists[i] = lastOf(list, q.truncate)
	}
	q.Prompts = lists
	return nil
}
