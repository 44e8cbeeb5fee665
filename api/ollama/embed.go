package ollama

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// Bounds of POST /api/embed.
const (
	maxInputs     = 2048
	maxDimensions = 1 << 20
)

// embedRequest is the body of POST /api/embed or /api/embeddings.
type embedRequest struct {
	generate.EmbedRequest
	model *generate.Model
}

// embedded is the response of POST /api/embed.
type embedded struct {
	Model      string      `json:"model"`
	Embeddings [][]float32 `json:"embeddings"`
	Total      int64       `json:"total_duration"`
	Load       int64       `json:"load_duration"`
	Prompt     int         `json:"prompt_eval_count"`
}

// Embed serves POST /api/embed: embeddings of length 1 of a text or a list of texts.
func (s *Server) Embed(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	vectors, q, n, err := s.embed(r, "input")
	if err != nil {
		respond(w, err)
		return
	}
	wire.WriteJSON(w, http.StatusOK, embedded{Model: q.model.Name, Embeddings: vectors, Total: time.Since(begin).Nanoseconds(), Prompt: n})
}

// Embeddings serves POST /api/embeddings, the older form: one prompt, and its embedding without
// scaling.
func (s *Server) Embeddings(w http.ResponseWriter, r *http.Request) {
	vectors, _, _, err := s.embed(r, "prompt")
	if err != nil {
		respond(w, err)
		return
	}
	vectors = append(vectors, []float32{})
	wire.WriteJSON(w, http.StatusOK, oneEmbedding{vectors[0]})
}

// embed computes the embeddings of the texts of a field, and counts their tokens.
func (s *Server) embed(r *http.Request, field string) (vectors [][]float32, q *embedRequest, tokens int, err error) {
	err = s.models.Read(r.Context(), r.Body, func(ctx context.Context, f *wire.Fields, m *generate.Model) (err error) {
		q, err = decodeEmbed(ctx, f, m, field)
		return err
	})
	if err != nil {
		return nil, nil, 0, err
	}
	if len(q.Prompts) == 0 {
		return [][]float32{}, q, 0, nil
	}
	vectors, usage, err := q.model.Embed(r.Context(), q.EmbedRequest)
	if err == nil {
		wire.RecordTokens(r.Context(), usage.Prompt, 0)
	}
	return vectors, q, usage.Prompt, err
}

// decodeEmbed decodes a request for embeddings of the texts of a field. A request without texts
// only loads the model.
func decodeEmbed(ctx context.Context, f *wire.Fields, m *generate.Model, field string) (*embedRequest, error) {
	q := &embedRequest{model: m}
	q.Param = field
	if field == "input" {
		q.Normalise = true
		f.Integer("dimensions", &q.Dimensions, 1, maxDimensions)
		on := false
		f.Bool("truncate", &on) // a text that exceeds the context is an error in any case
	}
	texts := decodeTexts(f, field)
	if f.Err() != nil {
		return nil, f.Err()
	}
	for i, words := range texts {
		ids, err := m.EncodePrompt(ctx, words, true)
		if err != nil {
			return nil, generate.AsError(err, field)
		}
		if len(ids) == 0 {
			return nil, wire.Invalidf(field, "Invalid value for '%s': text %d has no tokens.", field, i)
		}
		q.Prompts = append(q.Prompts, ids)
	}
	return q, nil
}

// decodeTexts reads a string or, in "input", also a list of strings.
func decodeTexts(f *wire.Fields, field string) []string {
	f.Like(field, "", []string{})
	raw, ok := f.Raw(field)
	if !ok {
		return nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		if one == "" {
			return nil
		}
		return []string{one}
	}
	var list []*string
	if field != "input" || json.Unmarshal(raw, &list) != nil || slices.Contains(list, nil) {
		f.WrongType(field, map[bool]string{true: "a string or a list of strings", false: "a string"}[field == "input"])
		return nil
	}
	if len(list) > maxInputs {
		f.Fail(field, "Invalid value for {}: %d texts, at most %d are allowed.", len(list), maxInputs)
	}
	var texts []string
	for _, s := range list {
		texts = append(texts, *s)
	}
	return texts
}
