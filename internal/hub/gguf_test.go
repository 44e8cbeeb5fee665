package hub

import (
	"slices"
	"strings"
	"testing"
)

func TestPullOfOneGGUF(t *testing.T) {
	h := newHub(t, map[string][]byte{
		"README.md": []byte("x"), "m-Q4_K_M.gguf": []byte("four"), "m-Q4_K_S.gguf": []byte("small"), "mmproj-Q4_K_M.gguf": []byte("eyes"), "m-mmproj-Q4_K_M.gguf": []byte("more eyes"),
		"Q8_0/m-Q8_0-00001-of-00002.gguf": []byte("a"), "Q8_0/m-Q8_0-00002-of-00002.gguf": []byte("b"), "m.Q6_K.gguf": []byte("6"), "n.Q6_K.gguf": []byte("six"),
	})
	for tag, want := range map[string]string{"Q4_K_M": "m-Q4_K_M.gguf", "q8_0": "Q8_0/m-Q8_0-00001-of-00002.gguf Q8_0/m-Q8_0-00002-of-00002.gguf"} {
		s, err := h.client("").Pull(t.Context(), repo, PullOptions{GGUF: tag})
		if err != nil {
			t.Errorf("%s: %v", tag, err)
			continue
		}
		if slices.Sort(s.Files); strings.Join(s.Files, " ") != want {
			t.Errorf("%s: got %v, want %s", tag, s.Files, want)
		}
	}
	for tag, want := range map[string]string{"Q2_K": "m-Q4_K_M", "Q6_K": "n.Q6_K"} {
		_, err := h.client("").Pull(t.Context(), repo, PullOptions{GGUF: tag})
		wantKind(t, err, NotFound, want)
	}
}
