package folder

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/gguf"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/tokenizer"
)

// A hubTokenizer has the parts of a tokenizer.json that a GGUF file keeps.
type hubTokenizer struct {
	Added []struct {
		ID      int
		Content string
		Special bool
	} `json:"added_tokens"`
	Model struct {
		Vocab  map[string]int
		Merges []any
	}
}

// metadata is what llama.cpp's converter writes of a tokenizer.
func (h *hubTokenizer) metadata(kind, pre string) gguf.Metadata {
	size := 0
	for _, id := range h.Model.Vocab {
		size = max(size, id+1)
	}
	for _, a := range h.Added {
		size = max(size, a.ID+1)
	}
	tokens, types, scores := make([]string, size), make([]int64, size), make([]float64, size)
	for token, id := range h.Model.Vocab {
		tokens[id], types[id], scores[id] = token, 1, -float64(id)
		if strings.HasPrefix(token, "<0x") && len(token) == 6 {
			types[id] = 6
		}
		if strings.Trim(token, "▁") == "" && token != "▁" {
			scores[id] = -1e9 // as the model has them, which keeps spaces apart until the end
		}
	}
	for _, a := range h.Added {
		tokens[a.ID], types[a.ID] = a.Content, tokenUserDefined
		if a.Special {
			types[a.ID] = tokenControl
		}
	}
	m := gguf.Metadata{ggml + "model": kind, ggml + "tokens": tokens, ggml + "token_type": types}
	if kind == "bert" {
		for id, token := range tokens {
			if rest, continues := strings.CutPrefix(token, "##"); continues {
				tokens[id] = rest
			} else if types[id] != tokenControl {
				tokens[id] = "▁" + token
			}
		}
		m[ggml+"normalizer.lowercase"] = pre != "cased"
		return m
	}
	if kind == "llama" {
		types[slices.Index(tokens, "<unk>")] = tokenUnknown
		m[ggml+"scores"] = scores
		return m
	}
	var merges []string
	for _, merge := range h.Model.Merges {
		switch merge := merge.(type) {
		case string:
			merges = append(merges, merge)
		case []any:
			merges = append(merges, merge[0].(string)+" "+merge[1].(string))
		}
	}
	m[ggml+"pre"], m[ggml+"merges"] = pre, merges
	return m
}

// tokenizerOf returns the tokenizer of a file with this metadata.
func tokenizerOf(t *testing.T, m gguf.Metadata) *tokenizer.Tokenizer {
	t.Helper()
	text, err := fileOf(m, tokenizerFile)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestTokenizersOfMetadata: published tokenizers, written as a GGUF file has them, cut texts as transformers does.
func TestTokenizersOfMetadata(t *testing.T) {
	tested := 0
	for _, c := range []struct {
		name, kind, pre, bos string
		id                   uint64
	}{
		{"gpt-2", "gpt2", "gpt-2", "", 0}, {"llama-bpe", "gpt2", "llama-bpe", "<|begin_of_text|>", 128000}, {"qwen2", "gpt2", "qwen2", "", 0},
		{"llama-spm", "llama", "", "<s>", 1}, {"bert-bge", "bert", "", "[CLS]", 101},
		{"tiny-wordpiece-uncased", "bert", "", "[CLS]", 2}, {"tiny-wordpiece-cased", "bert", "cased", "[CLS]", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var hub hubTokenizer
			if !golden.JSON(t, golden.Path(t, "text", "tokenizers", c.name, "tokenizer.json"), &hub) {
				return
			}
			tested++
			m := hub.metadata(c.kind, c.pre)
			if c.bos != "" {
				m[ggml+"bos_token_id"] = c.id
			}
			tok := tokenizerOf(t, m)
			var cases struct {
				Cases []struct {
					Text       string
					IDs        []int32
					IDsSpecial []int32 `json:"ids_special"`
				}
			}
			golden.JSON(t, golden.Path(t, "text", "tokenizers", c.name, "cases.json"), &cases)
			wrong := 0
			for _, want := range cases.Cases {
				ids, err := tok.EncodeIDs(want.Text, tokenizer.EncodeOptions{AddSpecialTokens: true})
				if (err != nil || !slices.Equal(ids, want.IDsSpecial)) && wrong < 3 {
					wrong++
					t.Errorf("%.60q: got %v, %v, want %v", want.Text, ids, err, want.IDsSpecial)
				}
			}
			if len(cases.Cases) == 0 {
				t.Error("no cases")
			}
		})
	}
	golden.Count(t, "text/tokenizers (as GGUF metadata)", tested)
}

func TestUnknownTokenizersAreNamed(t *testing.T) {
	tokens := []string{"a"}
	for want, m := range map[string]gguf.Metadata{
		"pre-of-tomorrow": {ggml + "model": "gpt2", ggml + "pre": "pre-of-tomorrow", ggml + "tokens": tokens},
		"t5":              {ggml + "model": "t5", ggml + "tokens": tokens},
		"token [UNK]":     {ggml + "model": "bert", ggml + "tokens": tokens, ggml + "token_type": []int64{1}},
		"two tokens":      {ggml + "model": "gpt2", ggml + "pre": "gpt-2", ggml + "tokens": tokens, ggml + "merges": []string{"ab"}},
		"0 scores":        {ggml + "model": "llama", ggml + "tokens": tokens},
		"3 types":         {ggml + "model": "gpt2", ggml + "tokens": tokens, ggml + "token_type": []int64{1, 1, 1}},
	} {
		if _, err := fileOf(m, tokenizerFile); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// TestPreTokenizersParse: each row of the table makes a tokenizer.
func TestPreTokenizersParse(t *testing.T) {
	for name := range preTokenizers {
		text, err := fileOf(gguf.Metadata{
			ggml + "model": "gpt2", ggml + "pre": name, ggml + "tokens": []string{"a", "b", "ab", "<s>"}, ggml + "token_type": []int64{1, 1, 1, 3},
			ggml + "merges": []string{"a b"}, ggml + "bos_token_id": uint64(3), ggml + "add_bos_token": true,
		}, tokenizerFile)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		tok, err := tokenizer.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if ids, err := tok.EncodeIDs("ab", tokenizer.EncodeOptions{AddSpecialTokens: true}); err != nil || !slices.Equal(ids, []int32{3, 2}) {
			t.Errorf("%s: got %v, %v", name, ids, err)
		}
		var file map[string]any
		if err := json.Unmarshal(text, &file); err != nil {
			t.Error(err)
		}
	}
}

// TestAFileWithoutAVocabularyHasNoTokenizer: its prompts are token ids, as those of a folder without
// tokenizer.json. It was an error, and the model was not served.
func TestAFileWithoutAVocabularyHasNoTokenizer(t *testing.T) {
	for _, m := range []gguf.Metadata{{}, {ggml + "model": "no_vocab"}} {
		if _, err := fileOf(m, tokenizerFile); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: got %v, want fs.ErrNotExist", m, err)
		}
	}
}
