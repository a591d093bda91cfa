"""FastAPI: routes that become jobs (``JobRouter``), and the pages that show them (``status_router``).

jobs = App("sqlite:///jobs.db")
router = JobRouter(jobs, prefix="/reports", identity=current_user)

@router.post("/{year}", job=JobOptions(timeout=600))
async def report(req: ReportRequest, year: int) -> Report: ...

api = FastAPI(lifespan=jobs.lifespan(worker=True))
api.include_router(router)
api.include_router(status_router(jobs), prefix="/jobs", dependencies=[Depends(may_see)])

Begin with ``router``. ``signature`` reads a handler, ``openapi`` says what the document shows. May import
``endpoints``.
"""

from headrace.core.words import Words
from headrace.endpoints.dependencies import InWorker, MadeInWorker
from headrace.endpoints.fastapi.router import JobRouter
from headrace.endpoints.fastapi.status import status_router
from headrace.endpoints.responses import Answers

__all__ = ["Answers", "InWorker", "JobRouter", "MadeInWorker", "Words", "status_router"]
