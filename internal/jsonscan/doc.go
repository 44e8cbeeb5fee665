// Package jsonscan reads JSON text in place, value by value, without building values.
//
// It has the parts that the readers of large files share: [Scanner] walks objects and arrays
// and decodes strings, and the functions find the end of a string, a value or a number. Only
// strings with escapes are copied, into memory that a Scanner uses again.
//
// The callers differ in what they accept and in the words of their errors. A Scanner therefore
// reports what it found as a [Fault], with its place, and the caller's Explain makes the error.
//
// The package does not read text that arrives in pieces: package toolcall does that byte by
// byte. It does not check UTF-8 either; callers do so for the whole text.
package jsonscan
