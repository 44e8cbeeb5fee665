package gguf

import (
	"path"
	"strings"
)

// Suffix ends the names of GGUF files.
const Suffix = ".gguf"

// IsFile reports whether name ends like that of a GGUF file, in any case of letters.
func IsFile(name string) bool { return strings.HasSuffix(strings.ToLower(name), Suffix) }

// MayBeModel reports whether name, which may contain a path, can be that of a model's file. It is
// false for hidden files and for files that belong to a model and are none: image projectors
// (mmproj) and importance matrices (imatrix). Adapters and drafts are named like models; only their
// headers tell them apart.
func MayBeModel(name string) bool {
	base := strings.ToLower(path.Base(name))
	if !IsFile(base) || strings.HasPrefix(base, ".") || strings.Contains(base, "mmproj") {
		return false
	}
	stem := strings.TrimSuffix(base, Suffix)
	rest, matrix := strings.CutPrefix(stem, "imatrix")
	return !(matrix && (rest == "" || strings.ContainsAny(rest[:1], "-_."))) && !strings.HasSuffix(stem, ".imatrix")
}
