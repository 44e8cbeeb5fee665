package finetune

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/filehash"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/samples"
)

// The cache of tokenised data has a file for each data file and each way of tokenising it. Data
// smaller than cachedData stays in memory, unless --data-cache names a folder. If the files exceed
// cacheBytes together, the least recently used ones are removed.
const (
	cachedData  = 8 << 20
	cacheBytes  = 32 << 30
	cacheSuffix = ".samples"
)

// made holds samples made from one or several files, with a key that identifies their sources. The
// key is empty if the sources are unknown.
type made[S any] struct {
	data.Dataset[S]
	key string
}

// report counts what happened to the records of a file.
type report struct {
	Skipped int    `json:"skipped"`
	Of      int    `json:"of"`
	First   string `json:"first"` // why the first one was skipped
	Cut     int    `json:"cut"`
	Empty   int    `json:"empty"` // without a label
}

func (r *report) log(j *job, path string) {
	if r.Skipped > 0 {
		j.log.Warn("records that cannot be used are skipped: --strict-data stops instead", "file", path, "skipped", r.Skipped, "of", r.Of, "first", r.First)
	}
	if r.Cut > 0 {
		j.log.Warn("texts are cut to --sequence", "file", path, "cut", r.Cut, "of", r.Of, "sequence", j.Sequence)
	}
	if r.Empty > 0 {
		j.log.Warn("texts without a token to learn are skipped", "file", path, "skipped", r.Empty, "of", r.Of)
	}
	if why := r.useless(j.Sequence); why != "" {
		j.useless = append(j.useless, path+" "+why)
	}
}

// useless returns why there is nothing to learn from a file, or "" if there is something.
func (r *report) useless(sequence int) string {
	switch {
	case r.Of == 0:
		return "has no records"
	case r.Empty == 0 || r.Empty+r.Skipped < r.Of:
		return ""
	case r.Cut > 0:
		return fmt.Sprintf("has only texts whose first %d tokens have none to learn: use a higher --sequence, or --learn-prompt", sequence)
	}
	return "has no answers, or only empty ones: use --learn-prompt to learn prompts and user messages"
}

// errCache is an error of the cache. The data may still be usable.
type errCache struct{ error }

// makeSamples returns the samples that fill emits. It reads them from the cache, or calls fill and
// caches them. If key is empty, they are in memory. name is the name of the data in messages.
func makeSamples[S any](j *job, name, key string, codec samples.Codec[S], fill func(emit func(S) error) (report, error)) (made[S], error) {
	if key != "" {
		d, err := cachedSamples(j, name, key, codec, fill)
		if wrong := (errCache{}); !errors.As(err, &wrong) {
			return made[S]{d, key}, err
		}
		j.log.Warn("tokenised data is kept in memory, because the cache cannot be used: omit it with --data-cache none", "file", name, "error", err)
	}
	var all data.Slice[S]
	r, err := fill(func(s S) error {
		all = append(all, s)
		return nil
	})
	if err != nil {
		return made[S]{}, err
	}
	r.log(j, name)
	return made[S]{all, ""}, nil
}

// cachedSamples is like makeSamples, but always uses the cache.
func cachedSamples[S any](j *job, name, key string, codec samples.Codec[S], fill func(emit func(S) error) (report, error)) (data.Dataset[S], error) {
	path := filepath.Join(j.cacheDir(), key[:32]+cacheSuffix)
	f, err := samples.Open(path, key, codec)
	var r report
	if err == nil {
		if err = json.Unmarshal(f.Info, &r); err == nil && !(j.StrictData && r.Skipped > 0) {
			j.log.Info("cached tokenised data is used", "file", name, "cache", path)
			r.log(j, name)
			now := time.Now()
			_ = os.Chtimes(path, now, now) // marks the file as recently used
			return useSamples(j, f), nil
		}
		f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.log.Warn("the cache of tokenised data is made again", "file", name, "cache", path, "error", err)
	}
	if err := os.MkdirAll(j.cacheDir(), 0o777); err != nil {
		return nil, errCache{err}
	}
	w, err := samples.Create(path, key, codec)
	if err != nil {
		return nil, errCache{err}
	}
	defer w.Discard()
	if r, err = fill(func(s S) error {
		if err := w.Add(s); err != nil {
			return errCache{err}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	info, err := json.Marshal(r)
	if err == nil {
		err = w.Commit(info)
	}
	if err == nil {
		f, err = samples.OpenWritten(path, key, codec) // reads the file to count its tokens
	}
	if err != nil {
		return nil, errCache{err}
	}
	r.log(j, name)
	j.trimCache(cacheBytes)
	return useSamples(j, f), nil
}

// useSamples returns the samples of a file, which is closed when the run ends.
func useSamples[S any](j *job, f *samples.File[S]) data.Dataset[S] {
	j.caches = append(j.caches, f.Close)
	return f
}

// closeData closes the files of samples.
func (j *job) closeData() {
	for _, f := range j.caches {
		_ = f() // they are read-only
	}
	j.caches = nil
}

// cacheDir returns the cache folder, or "" if there is none.
func (j *job) cacheDir() string {
	switch j.DataCache {
	case "none":
		return ""
	case "auto":
		dir, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		return filepath.Join(dir, "heft", "data")
	}
	return j.DataCache
}

// fileKey returns the key of the samples of a data file, or "" if they are not cached. how lists
// the options, besides the tokenizer and the program, that determine the samples.
func (j *job) fileKey(path string, how ...any) (string, error) {
	if j.cacheDir() == "" {
		return "", nil
	}
	info, err := os.Stat(path)
	if err != nil || info.IsDir() || j.DataCache == "auto" && info.Size() < cachedData {
		return "", nil // reading the file reports the error
	}
	words, err := j.tokenizerDigest()
	if err != nil || words == "" {
		return "", err
	}
	content, err := filehash.SHA256(path)
	if err != nil {
		return "", misuse(err)
	}
	return keyOf(append([]any{content, filepath.Ext(path), words, j.Method, j.Sequence, j.vocab}, how...)...), nil
}

// keyOf hashes everything that determines the samples.
func keyOf(parts ...any) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%#v\x00", p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// tokenizerDigest returns the result of hashTokenizer, which it calls only once.
func (j *job) tokenizerDigest() (sum string, err error) {
	if j.words == "" {
		j.words, err = j.hashTokenizer()
	}
	return j.words, err
}

// hashTokenizer hashes the files of the tokenizer and the template, and the program, because
// another version may tokenise differently. It returns "" for a GGUF file.
func (j *job) hashTokenizer() (string, error) {
	if info, err := os.Stat(j.model); err != nil || !info.IsDir() {
		return "", err
	}
	files, err := os.ReadDir(j.model)
	if err != nil {
		return "", err
	}
	parts := []any{programVersion()}
	for _, f := range files {
		if !slices.Contains([]string{".json", ".jinja", ".model", ".txt", ".tiktoken"}, filepath.Ext(f.Name())) {
			continue
		}
		sum, err := filehash.SHA256(filepath.Join(j.model, f.Name()))
		if err != nil {
			return "", err
		}
		parts = append(parts, f.Name(), sum)
	}
	return keyOf(parts...), nil
}

// programVersion identifies the build of this program.
func programVersion() string {
	version := ""
	if b, ok := debug.ReadBuildInfo(); ok {
		version = b.Main.Version + b.Main.Sum
	}
	path, err := os.Executable()
	if err != nil {
		return version
	}
	info, err := os.Stat(path)
	if err != nil {
		return version
	}
	return fmt.Sprint(version, " ", info.Size(), " ", info.ModTime().UnixNano())
}

// trimCache removes the least recently used files of the cache until the rest take at most most
// bytes. Open files stay readable; on Windows they cannot be removed and stay.
func (j *job) trimCache(most int64) {
	dir := j.cacheDir()
	atomicfile.RemoveStale(dir)
	files, err := filepath.Glob(filepath.Join(dir, "*"+cacheSuffix))
	if err != nil {
		return
	}
	var all []fs.FileInfo
	total := int64(0)
	for _, path := range files {
		if info, err := os.Stat(path); err == nil {
			all, total = append(all, info), total+info.Size()
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return cmp.Compare(a.ModTime().UnixNano(), b.ModTime().UnixNano()) })
	for _, info := range all[:max(len(all)-1, 0)] { // except the newest, which this run uses
		if total <= most {
			return
		}
		if os.Remove(filepath.Join(dir, info.Name())) == nil {
			total -= info.Size()
		}
	}
}
