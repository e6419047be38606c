package mitm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func everyHost(string) bool { return true }

func newCA(t *testing.T, hosts ...string) *CA {
	t.Helper()
	ca, err := New(hosts, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issuer(t *testing.T, ca *CA, allow func(string) bool) *Issuer {
	t.Helper()
	i, err := NewIssuer(ca, allow)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// verify checks a certificate as a client of that host does that trusts ca.
func verify(ca *CA, cert *x509.Certificate, host string, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now})
	return err
}

func TestACertificateIsGoodForItsHostAlone(t *testing.T) {
	ca := newCA(t, "api.example.com", "127.0.0.1", "::1")
	i := issuer(t, ca, everyHost)
	for _, host := range []string{"api.example.com", "eu.api.example.com", "127.0.0.1", "::1"} {
		c, err := i.Certificate(host)
		if err != nil {
			t.Fatal(err)
		}
		asked := host
		if strings.Contains(host, ":") {
			asked = "[" + host + "]"
		}
		if err := verify(ca, c.Leaf, asked, time.Now()); err != nil {
			t.Errorf("%s: %v", host, err)
		}
		if err := verify(ca, c.Leaf, "other.example.com", time.Now()); err == nil {
			t.Errorf("the certificate of %s is good for another host", host)
		}
		if life := c.Leaf.NotAfter.Sub(c.Leaf.NotBefore); life > LeafLife+early {
			t.Errorf("%s: it lives for %v", host, life)
		}
		if c.Leaf.IsCA || c.Leaf.KeyUsage != x509.KeyUsageDigitalSignature || !slices.Equal(c.Leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
			t.Errorf("%s: it may do more than serve", host)
		}
	}
}

func TestTheAuthorityIsSmall(t *testing.T) {
	ca := newCA(t, "api.example.com")
	from, to := ca.Validity()
	if span := to.Sub(from); span > 10*365*24*time.Hour {
		t.Errorf("it is valid for %v", span)
	}
	if k, ok := ca.cert.PublicKey.(*ecdsa.PublicKey); !ok || k.Curve != elliptic.P256() {
		t.Errorf("its key is %T", ca.cert.PublicKey)
	}
	if !ca.cert.MaxPathLenZero || ca.cert.KeyUsage&x509.KeyUsageCertSign == 0 || !ca.cert.PermittedDNSDomainsCritical {
		t.Error("it may have authorities below it, or its constraints may be passed over")
	}
	if a, b := newCA(t, "a.test"), newCA(t, "a.test"); a.Name() == b.Name() || a.Fingerprint() == b.Fingerprint() {
		t.Error("two authorities have one name")
	}
}

// Whoever has the key cannot go beyond the constraints either.
func TestTheConstraintsBindWhoeverHasTheKey(t *testing.T) {
	for _, c := range []struct {
		made []string
		host string
	}{
		{[]string{"api.example.com"}, "bank.test"},
		{[]string{"api.example.com"}, "example.com"},
		{[]string{"api.example.com"}, "xapi.example.com"},
		{[]string{"api.example.com"}, "127.0.0.1"},
		{[]string{"api.example.com"}, "2001:db8::1"},
		{[]string{"127.0.0.1"}, "127.0.0.2"},
		{[]string{"127.0.0.1"}, "::1"},
		{[]string{"127.0.0.1"}, "bank.test"},
		{[]string{"::1"}, "127.0.0.1"},
	} {
		ca := newCA(t, c.made...)
		if ca.Covers(c.host) {
			t.Errorf("an authority for %v covers %s", c.made, c.host)
		}
		i := issuer(t, ca, everyHost)
		if _, err := i.Certificate(c.host); err == nil || !strings.Contains(err.Error(), "was not made for") {
			t.Errorf("%s: %v", c.host, err)
		}
		l, err := steal(ca, c.host)
		if err != nil {
			t.Fatal(err)
		}
		asked := c.host
		if strings.Contains(asked, ":") {
			asked = "[" + asked + "]"
		}
		if err := verify(ca, l.cert.Leaf, asked, time.Now()); err == nil {
			t.Errorf("a client takes a certificate for %s from an authority for %v", c.host, c.made)
		}
	}
}

// steal issues as whoever has the key can: without a look at the constraints.
func steal(ca *CA, host string) (*leaf, error) {
	free := *ca.cert
	if err := constrain(&free, []string{host}); err != nil {
		return nil, err
	}
	return (&Issuer{ca: &CA{cert: &free, key: ca.key}}).issue(host, time.Now())
}

func TestNoCertificateForAHostThatIsNotListed(t *testing.T) {
	i := issuer(t, newCA(t, "example.com"), func(h string) bool { return h == "api.example.com" })
	if _, err := i.Certificate("api.example.com"); err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{"www.example.com", "example.com", "API.example.com", "api.example.com.", "*.example.com", "", "a b"} {
		if c, err := i.Certificate(h); err == nil {
			t.Errorf("%q got a certificate: %v", h, c.Leaf.DNSNames)
		}
	}
	if _, err := issuer(t, newCA(t, "example.com"), everyHost).Certificate("a_*.example.com"); err == nil {
		t.Error("a name that is none got a certificate")
	}
	if _, err := NewIssuer(newCA(t, "example.com"), nil); err == nil {
		t.Error("an issuer without a list was made")
	}
}

func TestCertificatesAreKeptUntilTheyAreToBeRenewed(t *testing.T) {
	i := issuer(t, newCA(t, "example.com"), everyHost)
	now := time.Now()
	i.now = func() time.Time { return now }
	get := func() *x509.Certificate {
		t.Helper()
		c, err := i.Certificate("api.example.com")
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(i.ca, c.Leaf, "api.example.com", now); err != nil {
			t.Fatal(err)
		}
		return c.Leaf
	}
	first := get()
	now = now.Add(LeafLife - renew - time.Second)
	if !get().Equal(first) {
		t.Error("it was made anew too early")
	}
	now = now.Add(2 * time.Second)
	second := get()
	if second.Equal(first) {
		t.Error("it was not renewed before its end")
	}
	if left := second.NotAfter.Sub(now); left < LeafLife-time.Minute {
		t.Errorf("the new one ends in %v", left)
	}
	// Near the authority's end a certificate ends with it, and none comes after.
	_, end := i.ca.Validity()
	now = end.Add(-time.Hour)
	if got := get().NotAfter; got.After(end) {
		t.Errorf("it ends at %v, its authority at %v", got, end)
	}
	now = end.Add(time.Hour)
	if _, err := i.Certificate("api.example.com"); err == nil {
		t.Error("an authority that is over issues")
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	i := issuer(t, newCA(t, "example.com"), everyHost)
	i.max = 3
	var wg sync.WaitGroup
	for n := range 40 {
		wg.Go(func() {
			if _, err := i.Certificate(fmt.Sprintf("h%d.example.com", n%10)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(i.byHost) != 3 || i.used.Len() != 3 {
		t.Errorf("%d hosts are kept in a list of %d", len(i.byHost), i.used.Len())
	}
	for h, e := range i.byHost {
		if e.Value.(*leaf).host != h {
			t.Errorf("%s leads to %s", h, e.Value.(*leaf).host)
		}
	}
}

func TestWhatIsSavedIsLoaded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	ca := newCA(t, "api.example.com", "10.0.0.1")
	if err := Save(dir, ca); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{KeyFile: 0o600, CertFile: 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v (%v)", name, info.Mode(), want, err)
		}
	}
	got, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.Fingerprint() != ca.Fingerprint() || !slices.Equal(got.Hosts(), []string{"api.example.com", "10.0.0.1"}) {
		t.Errorf("loaded %s for %v", got.Fingerprint(), got.Hosts())
	}
	if _, err := issuer(t, got, everyHost).Certificate("api.example.com"); err != nil {
		t.Error(err)
	}
	shown, err := LoadCertificate(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewIssuer(shown, everyHost); err == nil {
		t.Error("an authority without its key issues")
	}
}

func TestAnAuthorityIsNeverWrittenOver(t *testing.T) {
	for _, left := range [][]string{{CertFile, KeyFile}, {CertFile}, {KeyFile}} {
		dir := t.TempDir()
		for _, name := range left {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := Save(dir, newCA(t, "a.test")); !errors.Is(err, ErrExists) {
			t.Errorf("beside %v: %v", left, err)
		}
		if slices.Contains(left, CertFile) {
			if _, _, err := Ensure(dir, []string{"a.test"}, nil, time.Now()); err == nil {
				t.Errorf("beside %v: a broken authority was taken", left)
			}
		} else if _, _, err := Ensure(dir, []string{"a.test"}, nil, time.Now()); !errors.Is(err, ErrExists) {
			t.Errorf("beside %v: %v", left, err)
		}
		for _, name := range left {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != "mine" {
				t.Errorf("beside %v: %s holds %q", left, name, b)
			}
		}
		all, _ := os.ReadDir(dir)
		if len(all) != len(left) {
			t.Errorf("beside %v: %d files are left", left, len(all))
		}
	}
	dir := t.TempDir()
	first, made, err := Ensure(dir, []string{"a.test"}, []string{"later.test"}, time.Now())
	if err != nil || !made || !first.Covers("later.test") {
		t.Fatal(made, err)
	}
	if again, made, err := Ensure(dir, []string{"a.test"}, nil, time.Now()); err != nil || made || again.Fingerprint() != first.Fingerprint() {
		t.Errorf("the second time: made %v, %v", made, err)
	}
	if err := Replace(dir, newCA(t, "b.test")); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(dir); err != nil || got.Covers("a.test") || !got.Covers("b.test") {
		t.Errorf("after replacing: %v", err)
	}
}

func TestAuthoritiesThatAreRefused(t *testing.T) {
	other := t.TempDir()
	if err := Save(other, newCA(t, "a.test")); err != nil {
		t.Fatal(err)
	}
	copyTo := func(t *testing.T, dir, name string) {
		b, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, want string
		do         func(t *testing.T, dir string)
	}{
		{"a key that others can read", "can read it (mode 0644)", func(t *testing.T, dir string) { os.Chmod(filepath.Join(dir, KeyFile), 0o644) }},
		{"a key that the group can read", "can read it (mode 0640)", func(t *testing.T, dir string) { os.Chmod(filepath.Join(dir, KeyFile), 0o640) }},
		{"a certificate that others can change", "can change it (mode 0666)", func(t *testing.T, dir string) { os.Chmod(filepath.Join(dir, CertFile), 0o666) }},
		{"the key of another", "does not belong to ca.pem", func(t *testing.T, dir string) { copyTo(t, dir, KeyFile) }},
		{"no key", "missing although", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, KeyFile)) }},
		{"an empty key", "no PRIVATE KEY in PEM", func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, KeyFile), 0) }},
		{"a certificate for a key", "no PRIVATE KEY in PEM", func(t *testing.T, dir string) {
			os.Rename(filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile))
			os.Chmod(filepath.Join(dir, KeyFile), 0o600)
			copyTo(t, dir, CertFile)
		}},
		{"a key that is a directory", "no regular file", func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, KeyFile))
			os.Mkdir(filepath.Join(dir, KeyFile), 0o700)
		}},
		{"a host that it was not made for", "was not made for b.test", nil},
		{"one that is over", "not valid at this time", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, hosts, now := t.TempDir(), []string{"a.test"}, time.Now()
			if err := Save(dir, newCA(t, "a.test")); err != nil {
				t.Fatal(err)
			}
			switch {
			case c.do != nil:
				c.do(t, dir)
			case strings.Contains(c.want, "not valid"):
				now = now.Add(Life + time.Hour)
			default:
				hosts = append(hosts, "b.test")
			}
			_, made, err := Ensure(dir, hosts, nil, now)
			if err == nil || made || !strings.Contains(err.Error(), c.want) {
				t.Errorf("made %v, error %v", made, err)
			}
			if err != nil && !strings.Contains(err.Error(), ";") {
				t.Errorf("it names no remedy: %v", err)
			}
		})
	}
}

func TestHostsThatNoAuthorityIsMadeFor(t *testing.T) {
	for _, hosts := range [][]string{nil, {""}, {"*.example.com"}, {"a b"}, {"-a.test"}, {".test"}, {"a..test"}, {"A.test"}, {"fe80::1%eth0"}} {
		if _, err := New(hosts, time.Now()); err == nil {
			t.Errorf("%q was taken", hosts)
		}
	}
}

func BenchmarkIssue(b *testing.B) {
	ca, err := New([]string{"example.com"}, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	i, err := NewIssuer(ca, everyHost)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := i.issue("api.example.com", time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
