package tokenizer

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
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
