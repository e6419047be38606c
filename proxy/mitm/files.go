package mitm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The files of an authority in its directory.
const (
	CertFile = "ca.pem"
	KeyFile  = "ca-key.pem"
)

// ErrExists reports that there is an authority already, or a part of one.
var ErrExists = errors.New("there is one already")

// FileError reports an authority's file that cannot be used.
type FileError struct{ Path, Reason, Remedy string }

// Error names the file, the reason and the remedy.
func (e *FileError) Error() string { return e.Path + ": " + e.Reason + "; " + e.Remedy }

const remake = "run callgate ca init --replace to make a new one, and have the clients trust that"

// maxPEM is larger than any file of an authority.
const maxPEM = 64 << 10

// Save writes an authority into a directory, which is made if it is missing.
// It never writes over a file: it fails with ErrExists where one is.
func Save(dir string, ca *CA) error {
	key, err := x509.MarshalPKCS8PrivateKey(ca.key)
	if err != nil {
		return fmt.Errorf("mitm: key: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, CertFile)); err == nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, CertFile), ErrExists)
	}
	keyPath := filepath.Join(dir, KeyFile)
	if err := create(keyPath, 0o600, "PRIVATE KEY", key); err != nil {
		return err
	}
	if err := create(filepath.Join(dir, CertFile), 0o644, "CERTIFICATE", ca.cert.Raw); err != nil {
		return errors.Join(err, os.Remove(keyPath)) // half an authority would stand in the way of the next
	}
	return nil
}

// Replace writes an authority over the one that is there, if any. Clients have
// to be told of the new one.
func Replace(dir string, ca *CA) error {
	for _, name := range []string{CertFile, KeyFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return Save(dir, ca)
}

func create(path string, mode fs.FileMode, kind string, der []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w", path, ErrExists)
	}
	if err != nil {
		return err
	}
	err = errors.Join(f.Chmod(mode), pem.Encode(f, &pem.Block{Type: kind, Bytes: der}), f.Sync(), f.Close())
	if err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// Load reads the authority of a directory and checks that the two files belong
// together and that nobody but their owner can read the key. Where there is
// none the error is fs.ErrNotExist.
func Load(dir string) (*CA, error) {
	cert, err := LoadCertificate(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, KeyFile)
	der, err := read(path, "PRIVATE KEY", 0o077)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &FileError{path, "it is missing although there is a " + CertFile, "put it back, or " + remake}
		}
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	key, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok || key.Curve != elliptic.P256() {
		return nil, &FileError{path, "it holds no P-256 key", "put it back, or " + remake}
	}
	if !key.PublicKey.Equal(cert.cert.PublicKey) {
		return nil, &FileError{path, "it does not belong to " + CertFile, "put it back, or " + remake}
	}
	return &CA{cert: cert.cert, key: key}, nil
}

// LoadCertificate is Load without the key: the authority can be shown and
// cannot issue.
func LoadCertificate(dir string) (*CA, error) {
	path := filepath.Join(dir, CertFile)
	der, err := read(path, "CERTIFICATE", 0o022)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil || !cert.IsCA || !cert.BasicConstraintsValid {
		return nil, &FileError{path, "it holds no certificate of an authority", "put it back, or " + remake}
	}
	return &CA{cert: cert}, nil
}

// read gives the one block of a PEM file that others have none of these rights
// to.
func read(path, kind string, never fs.FileMode) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &FileError{path, "it is no regular file", "put a file there, or " + remake}
	}
	if mode := info.Mode().Perm(); mode&never != 0 {
		what, remedy := "read", "run chmod 600 on it; if others may have read it, "+remake
		if never == 0o022 {
			what, remedy = "change", "run chmod 644 on it and compare callgate ca show with what clients trust"
		}
		return nil, &FileError{path, fmt.Sprintf("others than its owner can %s it (mode %04o)", what, mode), remedy}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPEM))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != kind {
		return nil, &FileError{path, "it holds no " + kind + " in PEM", "put it back, or " + remake}
	}
	return block.Bytes, nil
}

// Ensure loads the authority of a directory; where there is none it makes one
// for the hosts it is needed for and for those that may be wanted later. made
// tells which. One that is expired or does not cover all it is needed for is an
// error: a new one is of no use until clients trust it.
func Ensure(dir string, need, later []string, now time.Time) (ca *CA, made bool, err error) {
	ca, err = Load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if ca, err = New(slices.Concat(need, later), now); err != nil {
			return nil, false, err
		}
		if err := Save(dir, ca); err != nil {
			return nil, false, err
		}
		return ca, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	path := filepath.Join(dir, CertFile)
	if ca.Expired(now) {
		return nil, false, &FileError{path, "it is not valid at this time (valid to " + ca.cert.NotAfter.Format(time.DateOnly) + ")", remake}
	}
	for _, h := range need {
		if !ca.Covers(h) {
			return nil, false, &FileError{path, "it was not made for " + h, remake}
		}
	}
	return ca, false, nil
}

// PEM is the authority's certificate as clients take it.
func (c *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})
}
