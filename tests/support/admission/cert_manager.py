"""A stand-in for cert-manager: its custom resources as far as our stack writes them, and what its controllers do.

Groups, kinds and fields are those of cert-manager's documentation (cert-manager.io/docs/usage/certificate and
/docs/concepts/ca-injector, v1). The definitions are ours: structural, with nothing in them that we don't write.
"""

import base64
import datetime as dt

import httpx2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from testbed.admission.deployment import CONFIGURATIONS
from testbed.stacks import Json
from testbed.waiting import eventually

GROUP = "cert-manager.io"
INJECT = "cert-manager.io/inject-ca-from"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_TEXT: Json = {"type": "string"}
_TEXTS: Json = {"type": "array", "items": _TEXT}


def _choice(*values: str) -> Json:
    return _TEXT | {"enum": list(values)}


def _object(required: tuple[str, ...] = (), **properties: Json) -> Json:
    return {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})


_CERTIFICATE = _object(
    ("issuerRef", "secretName"),
    secretName=_TEXT,
    commonName=_TEXT | {"maxLength": 64},
    dnsNames=_TEXTS,
    usages={"type": "array", "items": _choice("digital signature", "key encipherment", "server auth", "client auth")},
    privateKey=_object(
        algorithm=_choice("RSA", "ECDSA", "Ed25519"),
        size={"type": "integer"},
        rotationPolicy=_choice("Never", "Always"),
    ),
    issuerRef=_object(("name",), group=_TEXT, kind=_TEXT, name=_TEXT),
)
_ISSUER = _object(ca=_object(("secretName",), secretName=_TEXT))


def _definition(kind: str, scope: str, spec: Json) -> Json:
    plural = f"{kind.lower()}s"
    status: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = _object(("spec",), spec=spec, status=status)
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [version],
        },
    }


class CertManager:
    """Its controllers, each act when it is told to, and one CA issuer."""

    def __init__(self, api: httpx2.Client, issuer: str) -> None:
        self._api = api
        self._issuer = issuer
        self.renew_authority()

    def install(self) -> None:
        """Define the custom resources, and make the ClusterIssuer."""
        definitions = [
            _definition("Certificate", "Namespaced", _CERTIFICATE),
            _definition("Issuer", "Namespaced", _ISSUER),
            _definition("ClusterIssuer", "Cluster", _ISSUER),
        ]
        for definition in definitions:
            self._made(_CRDS, definition)
        path = f"/apis/{GROUP}/v1/clusterissuers"
        eventually(lambda: self._api.get(path).status_code == httpx2.codes.OK)
        eventually(lambda: self._api.get(f"/apis/{GROUP}/v1/certificates").status_code == httpx2.codes.OK)
        spec = {"ca": {"secretName": "root"}}
        metadata = {"name": self._issuer}
        self._made(path, {"apiVersion": f"{GROUP}/v1", "kind": "ClusterIssuer", "metadata": metadata, "spec": spec})

    def renew_authority(self) -> None:
        """From now on the issuer signs with another authority."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"root {x509.random_serial_number() % 10**6}")])
        builder = _builder(name, name, self._key).add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        self._authority = builder.sign(self._key, hashes.SHA256())

    def issue(self) -> dict[str, bytes]:
        """Sign every Certificate of the issuer anew, write its Secret, and return what the last one holds."""
        files: dict[str, bytes] = {}
        for certificate in self._api.get(f"/apis/{GROUP}/v1/certificates").json()["items"]:
            assert certificate["spec"]["issuerRef"] == {"group": GROUP, "kind": "ClusterIssuer", "name": self._issuer}
            files = self._signed(certificate["spec"])
            namespace, name = certificate["metadata"]["namespace"], certificate["spec"]["secretName"]
            secrets = f"/api/v1/namespaces/{namespace}/secrets"
            data = {key: base64.b64encode(content).decode() for key, content in files.items()}
            secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "data": data}
            secret |= {"metadata": {"name": name, "namespace": namespace}}
            if self._api.get(f"{secrets}/{name}").status_code == httpx2.codes.NOT_FOUND:
                self._made(secrets, secret)
            else:
                answer = self._api.put(f"{secrets}/{name}", json=secret)
                assert answer.status_code == httpx2.codes.OK, answer.text
        return files

    def inject(self) -> int:
        """Write caBundle where the annotation asks for it; the number of configurations that did."""
        injected = 0
        for configuration in self._api.get(CONFIGURATIONS).json()["items"]:
            namespace, _, name = configuration["metadata"].get("annotations", {}).get(INJECT, "").partition("/")
            if not name:
                continue
            certificate = self._api.get(f"/apis/{GROUP}/v1/namespaces/{namespace}/certificates/{name}").json()
            secret = self._api.get(f"/api/v1/namespaces/{namespace}/secrets/{certificate['spec']['secretName']}").json()
            operations = [
                {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": secret["data"]["ca.crt"]}
                for index, _ in enumerate(configuration["webhooks"])
            ]
            path = f"{CONFIGURATIONS}/{configuration['metadata']['name']}"
            headers = {"Content-Type": "application/json-patch+json"}
            answer = self._api.patch(path, json=operations, headers=headers)
            assert answer.status_code == httpx2.codes.OK, answer.text
            injected += 1
        return injected

    def _signed(self, spec: Json) -> dict[str, bytes]:
        assert (spec["privateKey"]["algorithm"], spec["privateKey"]["size"]) == ("ECDSA", 256)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, spec["commonName"])])
        names = x509.SubjectAlternativeName([x509.DNSName(name) for name in spec["dnsNames"]])
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH] if "server auth" in spec["usages"] else [])
        certificate = (
            _builder(subject, self._authority.subject, key)
            .add_extension(names, critical=False)
            .add_extension(usages, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        # PKCS 1 is cert-manager's default; of an EC key that means SEC 1.
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        return {"tls.crt": _pem(certificate), "tls.key": private, "ca.crt": _pem(self._authority)}

    def _made(self, path: str, manifest: Json) -> None:
        answer = self._api.post(path, json=manifest)
        assert answer.status_code == httpx2.codes.CREATED, answer.text


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=90))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
