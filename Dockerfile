# The server, as an ordinary user. The database is another container's (docker-compose.yml) or, without
# TARKO_DATABASE_URL, the embedded one in the volume.
FROM python:3.12-slim

RUN useradd --create-home --uid 10001 tarko \
 && install --directory --owner=tarko --group=tarko /var/lib/tarko

COPY pyproject.toml constraints.txt hatch_build.py README.md LICENSE alembic.ini /src/
COPY app /src/app
COPY alembic /src/alembic
COPY web /src/web
COPY clients /src/clients
RUN pip install --no-cache-dir --constraint /src/constraints.txt /src \
 && rm -rf /src/web/node_modules /src/web/dist

USER 10001
WORKDIR /home/tarko
ENV TARKO_HOST=0.0.0.0 TARKO_DATA_DIR=/var/lib/tarko PYTHONUNBUFFERED=1
VOLUME /var/lib/tarko
EXPOSE 8888
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s \
  CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ.get('TARKO_PORT', '8888')}/readyz\", timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["tarko-server"]
CMD ["serve"]
