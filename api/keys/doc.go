// Package keys reads API keys from a file, with a name and limits for each, and enforces the
// limits.
//
// A [Set] finds the key of a request. [Key.Enter] admits the request or says when to retry. The
// file is read again when it changes ([Set.Watch]) or on demand ([Set.Reload]). The usage of a key
// is kept by its name.
package keys
