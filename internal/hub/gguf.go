package hub

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/gguf"
)

// CutTag splits ORG/NAME:TAG, which names the GGUF file of one type in a repository:
// ORG/NAME:Q4_K_M. tag is empty where there is none.
func CutTag(name string) (repo, tag string) {
	repo, tag, _ = strings.Cut(name, ":")
	return repo, tag
}

// part matches the end of the names of the parts of a split file.
var part = regexp.MustCompile(`-\d{5}-of-\d{5}$`)

// ggufStem returns the name of a GGUF model without the numbers of its parts. ok is false for files
// that are no models by their names; see [gguf.MayBeModel].
func ggufStem(name string) (stem string, ok bool) {
	if !gguf.MayBeModel(name) {
		return "", false
	}
	return part.ReplaceAllString(name[:len(name)-len(gguf.Suffix)], ""), true
}

// GGUFFiles returns the files of the GGUF model among names whose type is tag, as in
// NAME-Q4_K_M.gguf: one file, or all parts of a split one. If no model or several have the tag, the
// error lists them.
func GGUFFiles(names []string, tag string) ([]string, error) {
	files := map[string][]string{}
	var models, matching []string
	for _, name := range names {
		stem, ok := ggufStem(name)
		if !ok {
			continue
		}
		if files[stem] == nil {
			models = append(models, stem)
			if tagged(stem, tag) {
				matching = append(matching, stem)
			}
		}
		files[stem] = append(files[stem], name)
	}
	switch {
	case len(models) == 0:
		return nil, failf(NoWeights, "no GGUF file in it")
	case len(matching) == 0:
		return nil, failf(NotFound, "no GGUF file of type %s: there are %s", printable(tag), printable(strings.Join(models, ", ")))
	case len(matching) > 1:
		return nil, failf(NotFound, "several GGUF files of type %s: take one with --include: %s", printable(tag), printable(strings.Join(matching, ", ")))
	}
	found := files[matching[0]]
	slices.Sort(found)
	return found, nil
}

// CachedGGUF returns the path of the GGUF file of type tag in a snapshot. For a split file it is
// the path of the first part. It uses no network. If the cache lacks the file or a part of it, the
// error has the kind [NotCached].
func (c *Client) CachedGGUF(repo Repo, revision, tag string) (string, error) {
	path, err := c.cachedGGUF(repo, revision, tag)
	return path, inFile(err, repo, "")
}

func (c *Client) cachedGGUF(repo Repo, revision, tag string) (string, error) {
	dir, err := c.snapshotOf(repo, revision)
	if err != nil {
		return "", err
	}
	var names []string
	_ = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return nil // unreadable files count as missing
	})
	files, err := GGUFFiles(names, tag)
	if err != nil {
		return "", failf(NotCached, "in the snapshot in the cache: %v", err)
	}
	if m := partCount.FindStringSubmatch(files[0]); m != nil {
		if n, _ := strconv.Atoi(m[1]); n != len(files) {
			return "", failf(NotCached, "the snapshot in the cache has %d of %s parts", len(files), m[1])
		}
	}
	return filepath.Join(dir, filepath.FromSlash(files[0])), nil
}

// partCount matches the number of parts in the name of a part.
var partCount = regexp.MustCompile(`(?i)-of-(\d{5})\.gguf$`)

// tagged reports whether a name ends with a tag, in whatever case.
func tagged(stem, tag string) bool {
	at := len(stem) - len(tag)
	return tag != "" && at >= 0 && strings.EqualFold(stem[at:], tag) && (at == 0 || strings.ContainsRune("-._/", rune(stem[at-1])))
}
