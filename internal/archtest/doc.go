// Package archtest holds the rules of the house that no compiler checks: which package
// may import which, what public packages may show, how long a file may be, and that
// every package says what it is. It has tests only.
package archtest
