package openai

import (
	"testing"

	"github.com/heftai/heft/api/wire"
)

func FuzzEmbeddingRequest(f *testing.F) {
	for _, seed := range []string{
		`{"input": "hi", "encoding_format": "base64", "dimensions": 3, "user": "u"}`,
		`{"input": ["a", "b"], "model": "fake", "add_special_tokens": false}`,
		`{"input": [1, 2, 3]}`, `{"input": [[1], [2, 3]], "dimensions": 2.0}`,
		`{"input": [null]}`, `{"input": ""}`, `{"input": [[]]}`, `{"input": "\ud800"}`, `[]`,
	} {
		f.Add(seed)
	}
	m := fuzzed(f)
	f.Fuzz(func(t *testing.T, body string) {
		in, err := wire.ParseFields([]byte(body))
		if err != nil {
			checkRefusal(t, err)
			return
		}
		q, err := decodeEmbedding(t.Context(), in, m)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if len(q.Prompts) == 0 || len(q.Prompts) > maxInputs || q.Dimensions < 0 {
			t.Errorf("%d inputs, %d dimensions", len(q.Prompts), q.Dimensions)
		}
		for _, p := range q.Prompts {
			if len(p) == 0 {
				t.Error("an input of no tokens")
			}
		}
	})
}
