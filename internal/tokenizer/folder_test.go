package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/heftai/heft/internal/golden"
)

// folderFile is a folder of scripts/make-tokenizer-folders.py.
type folderFile struct {
	Name      string
	Files     map[string][]byte
	VocabSize int `json:"vocab_size"`
	Special   []int32
	Cases     []encodeCase
}

func (f *folderFile) fs() fstest.MapFS {
	files := fstest.MapFS{}
	for name, data := range f.Files {
		files[name] = &fstest.MapFile{Data: data}
	}
	return files
}

func readFolders(t testing.TB) []folderFile {
	var folders []folderFile
	if !golden.JSON(t, filepath.Join("testdata", "folders.json"), &folders) {
		t.Fatal("testdata/folders.json.gz: missing")
	}
	return folders
}

// TestFoldersWithoutTokenizerJSON compares the tokenizers of folders without tokenizer.json with
// those of transformers.
func TestFoldersWithoutTokenizerJSON(t *testing.T) {
	for _, f := range readFolders(t) {
		t.Run(f.Name, func(t *testing.T) {
			tok, err := LoadFS(f.fs(), f.Name)
			if err != nil {
				t.Fatal(err)
			}
			if got := tok.VocabSize(); got != f.VocabSize {
				t.Errorf("vocabulary of %d, want %d", got, f.VocabSize)
			}
			special := map[int32]bool{}
			for _, id := range f.Special {
				special[id] = true
			}
			for id := range int32(tok.VocabSize()) {
				if tok.IsSpecial(id) != special[id] {
					t.Errorf("token %d: special is %v, want %v", id, tok.IsSpecial(id), special[id])
				}
			}
			for _, c := range f.Cases {
				c.check(t, tok)
			}
		})
	}
}

// TestIQuestCoderTookTheClassOfItsFiles: its type has a generic tokenizer whatever class the files state. DeepSeek-V3.2
// and GLM-5 are not in transformers' table, so the files decide.
func TestIQuestCoderTookTheClassOfItsFiles(t *testing.T) {
	for _, c := range []struct{ model, class, want string }{
		{"iquestcoder", "LlamaTokenizer", generic},
		{"deepseek_v32", "LlamaTokenizer", "LlamaTokenizer"},
		{"deepseek_v32", "", generic},
		{"glm_moe_dsa", "PreTrainedTokenizer", generic},
		{"glm_moe_dsa", "GPT2Tokenizer", "GPT2Tokenizer"},
		{"gpt_bigcode", "GPT2Tokenizer", generic},
		{"opt", "", "GPT2Tokenizer"},
	} {
		if got := (&settings{model: c.model, class: c.class}).className(); got != c.want {
			t.Errorf("%s with files of %q: got %s, want %s", c.model, c.class, got, c.want)
		}
	}
}

// TestDamagedVocabularies changes bytes of the files of each folder. A damaged file is an error or a
// tokenizer, never a panic.
func TestDamagedVocabularies(t *testing.T) {
	for _, f := range readFolders(t) {
		r := rand.New(rand.NewPCG(7, 16))
		files := f.fs()
		for name, file := range files {
			whole := file.Data
			for range 40 {
				damaged := slices.Clone(whole)
				for range 1 + r.IntN(4) {
					at := r.IntN(len(damaged))
					switch r.IntN(3) {
					case 0:
						damaged[at] = byte(r.IntN(256))
					case 1:
						damaged = damaged[:at+1]
					default:
						damaged = slices.Insert(damaged, at, byte(r.IntN(256)), 0xFF)
					}
				}
				files[name] = &fstest.MapFile{Data: damaged}
				if tok, err := LoadFS(files, f.Name); err == nil {
					_, _ = tok.EncodeIDs("the <s> Grüße\n", EncodeOptions{})
				}
			}
			files[name] = &fstest.MapFile{Data: whole}
		}
	}
}

// TestSentencePieceModelsAreBounded: counts and lengths are checked before memory is allocated.
func TestSentencePieceModelsAreBounded(t *testing.T) {
	piece := func(text string) string {
		body := "\x0a" + string(binary.AppendUvarint(nil, uint64(len(text)))) + text
		return "\x0a" + string(binary.AppendUvarint(nil, uint64(len(body)))) + body
	}
	var long strings.Builder
	for n := range 300 {
		long.WriteString(piece(strings.Repeat("a", 30*n)))
	}
	for name, data := range map[string]string{
		"empty pieces": strings.Repeat("\x0a\x00", maxTokens+1), "a length beyond the file": "\x0a\xff\xff\xff\xff\x7f", "no pieces": "",
		"a length of 64 bits": "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a group": "\x0b\x0c", "not UTF-8": piece("\xff"),
		"a type": piece("a") + "\x12\x02\x18\x03", "quadratic work": strings.Repeat(long.String(), 2) + piece(strings.Repeat("a", 1<<20)),
	} {
		files := fstest.MapFS{"tokenizer.model": {Data: []byte(data)}, "config.json": {Data: []byte(`{"model_type":"gemma"}`)}}
		if _, err := LoadFS(files, "M"); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want an error of the file", name, err)
		}
	}
}

// TestRankedVocabulariesAreBounded: numbers and lengths of tiktoken.model and tekken.json are checked
// before memory is allocated.
func TestRankedVocabulariesAreBounded(t *testing.T) {
	config := `{"config":{"pattern":"a+"%s},"vocab":[{"token_bytes":"YQ=="}]%s}`
	for name, file := range map[string][2]string{
		"a token that is not base64":   {"tiktoken.model", "YQ== 0\n%% 1\n"},
		"an id beyond 32 bits":         {"tiktoken.model", "YQ== 4294967296\n"},
		"a negative id":                {"tiktoken.model", "YQ== -1\n"},
		"empty lines":                  {"tiktoken.model", strings.Repeat("\n", maxTokens)},
		"special tokens without end":   {"tekken.json", fmt.Sprintf(config, `,"default_num_special_tokens":1000000000000`, "")},
		"fewer than the listed ones":   {"tekken.json", fmt.Sprintf(config, `,"default_num_special_tokens":1`, "")},
		"a size beyond the vocabulary": {"tekken.json", fmt.Sprintf(config, `,"default_vocab_size":1000000`, "")},
		"a negative size":              {"tekken.json", fmt.Sprintf(config, `,"default_vocab_size":-5`, "")},
		"a rank beyond the list":       {"tekken.json", fmt.Sprintf(config, "", `,"special_tokens":[{"rank":7,"token_str":"<x>"}]`)},
		"two vocabularies":             {"tekken.json", fmt.Sprintf(config, "", `,"vocab":[]`)},
		"a token without bytes":        {"tekken.json", `{"config":{"pattern":"a"},"vocab":[{}]}`},
		"no pattern":                   {"tekken.json", `{"vocab":[]}`},
	} {
		files := fstest.MapFS{file[0]: {Data: []byte(file[1])}, "config.json": {Data: []byte(`{"model_type":"kimi_k2"}`)}}
		if _, err := LoadFS(files, "M"); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want an error of the file", name, err)
		}
	}
	files := fstest.MapFS{"tiktoken.model": {Data: []byte("YQ== 0\n")}, "config.json": {Data: []byte(`{"model_type":"kimi_k2"}`)},
		"tokenizer_config.json": {Data: []byte(`{"added_tokens_decoder":{"2000000000":{"content":"<x>"}}}`)}}
	if _, err := LoadFS(files, "M"); err == nil || !strings.Contains(err.Error(), "2000000000") {
		t.Errorf("reserved tokens without end: %v", err)
	}
}
